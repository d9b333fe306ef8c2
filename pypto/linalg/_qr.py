"""QR factorisation by blocked Householder reflections, and products with Q.

Right-looking with a lookahead of one panel. A panel A[k:, k] = Q_k [R; 0] gives Q_k = I - V T V^H, V unit lower trapezoidal
and T upper triangular, and the columns right of it become

    A := Q_k^H A = A - V (T^H (V^H A)).

On one grid row LAPACK factors the panel. On several a tree of small factorisations does (see ``_tsqr``), which needs two
messages a level instead of two a column; its orthonormal factor Q is then written as reflections: with D the diagonal matrix
of unit numbers that makes the elimination below stable without pivoting,

    Q1 - D = L U,    V = [L; Q2 U^-1],    T = -U D^H L^-H,    R := D R.

Source: LAPACK xGEQRT, xLARFB; R. Schreiber, C. Van Loan, A storage-efficient WY representation (1989); G. Ballard et al.,
Reconstructing Householder vectors from tall-skinny QR (2014).
"""

from collections.abc import Callable, Iterator

import numpy as np

from pypto.device.cpu import CpuDevice, WorkQueue
from pypto.linalg._tiled import Panel, Tiles
from pypto.linalg._tsqr import block_reflector, factor, reflectors, tsqr
from pypto.tiles.tiled import TiledArray

__all__ = ["block_factors", "geqrf", "multiply_q"]

#: Pieces of an update whose reduction is one message, where there are several grid rows.
STRETCH = 4
#: Order below which the elimination of Q1 - D goes column by column.
LEAF = 8


def geqrf(a: TiledArray) -> np.ndarray:
    """A := R on and above the diagonal and V below it, in place; square tiles.

    Returns
    -------
    factors : (nb, min(m, n)) array
        The T of every panel side by side; tau is what stands on their diagonals. The same on every rank of the grid
        (empty elsewhere).
    """
    if not a.layout.holds(a.world.rank):
        return np.zeros((0, 0), a.dtype)
    t = Tiles(a)
    factors = np.zeros((t.nb, min(t.m, t.n)), a.dtype, order="F")
    trailing = t.device.queue()
    panel = _start_panel(t, 0) if len(t) else None
    for k in range(len(t)):
        panel.wait(trailing.step)  # meanwhile the trailing matrix is updated by panel k-1
        trailing.drain()
        width = t.width(k)
        update = _Reflection(t, k, panel.part, "C")
        factors[:width, k * t.nb : k * t.nb + width] = update.factor
        begin = t.c(k) + width if t.col == t.owner_col(k) else t.c(k + 1)
        if k + 1 < len(t):
            if t.col == t.owner_col(k + 1):
                update.columns(t.local, slice(begin, begin + t.width(k + 1)))
                begin += t.width(k + 1)
            panel = _start_panel(t, k + 1)
        update.rest(t, begin, trailing)
    trailing.drain()
    return factors


def multiply_q(a: TiledArray, factors: np.ndarray, c: TiledArray, trans: str, grow: bool = False) -> None:
    """C := Q C ("N") or Q^H C ("C") in place, Q from `a`; C on the same grid with the rows of A.

    `grow` says that C holds the first columns of the identity, so that the panel k changes nothing left of its column.
    """
    if not a.layout.holds(a.world.rank):
        return
    t, x = Tiles(a), Tiles(c)
    trailing = t.device.queue()
    numbers = c.layout.indices(1, c.world.rank)
    order = range(len(t)) if trans == "C" else range(len(t) - 1, -1, -1)
    for k, panel in _each_panel(t, factors, order, trailing):
        begin = int(np.searchsorted(numbers, k * t.nb)) if grow else 0
        _Reflection(t, k, panel.part, trans).rest(x, begin, trailing)
    trailing.drain()


def block_factors(a: TiledArray, tau: np.ndarray) -> np.ndarray:
    """Return the T of every panel, as ``geqrf`` does, from the reflections in `a` and their factors `tau`."""
    if not a.layout.holds(a.world.rank):
        return np.zeros((0, 0), a.dtype)
    t = Tiles(a)
    factors = np.zeros((t.nb, len(tau)), a.dtype, order="F")
    for k in range(len(t)):
        width = t.width(k)
        here = slice(k * t.nb, k * t.nb + width)
        if t.col == t.owner_col(k):
            factors[:width, here] = block_reflector(t.device, _vectors(t, k), tau[here], t.col_comm)
    t.row_comm.allreduce(factors)  # each panel's is on one grid column
    return factors


def _each_panel(t: Tiles, factors: np.ndarray, order: range, trailing: WorkQueue) -> Iterator[tuple[int, Panel]]:
    """Yield the panels of a factored matrix, the next one on its way already and what the last one left to do done."""

    def start(k: int) -> Panel:
        width = t.width(k)
        here = factors[:width, k * t.nb : k * t.nb + width]
        return _panel(t, k).send(_with_factor(here, _vectors(t, k)) if t.col == t.owner_col(k) else None)

    coming = start(order[0]) if len(order) else None
    for i, k in enumerate(order):
        here = coming.wait(trailing.step)
        trailing.drain()
        if i + 1 < len(order):
            coming = start(order[i + 1])
        yield k, here


def _vectors(t: Tiles, k: int) -> np.ndarray:
    """Return this rank's rows of the vectors of panel k, unit diagonal and zeros above included."""
    width = t.width(k)
    block = t.local[t.r(k) :, t.c(k) : t.c(k) + width]
    return reflectors(block) if t.row == t.owner_row(k) else block


def _panel(t: Tiles, k: int) -> Panel:
    return Panel(t, k, t.width(k) + t.local.shape[0] - t.r(k), t.width(k), 0)


def _with_factor(factor: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return [T; V]: what travels along the grid rows."""
    part = np.empty((len(factor) + len(v), len(factor)), v.dtype, order="F")
    part[: len(factor)] = factor
    part[len(factor) :] = v
    return part


def _start_panel(t: Tiles, k: int) -> Panel:
    """Factor tile column k where it lies, and begin to broadcast T and V along the grid rows."""
    panel, part = _panel(t, k), None
    if t.col == t.owner_col(k):
        block = t.local[t.r(k) :, t.c(k) : t.c(k) + t.width(k)]
        if t.p == 1:
            part = np.empty((t.width(k) + len(block), t.width(k)), block.dtype, order="F")
            part[: t.width(k)] = factor(t.device, block, part[t.width(k) :])
        else:
            part = _factor_by_tree(t, k, block)
    return panel.send(part)


def _factor_by_tree(t: Tiles, k: int, block: np.ndarray) -> np.ndarray:
    """Factor a panel over several grid rows; return [T; V]."""
    width, root = t.width(k), t.owner_row(k)
    comm, device = t.col_comm, t.device
    rows = [t.rows_of(k, i) for i in range(t.p)]
    r = tsqr(device, comm, block, rows, root)
    # From the root: L below and U on and above the diagonal, and D in the last row.
    packed = np.empty((width + 1, width), block.dtype, order="F")
    if comm.rank == root:
        packed[:width] = block[:width]
        _eliminate(device, packed[:width], packed[width])
    comm.bcast(packed, root)
    lu, d = packed[:width], packed[width]
    t_factor = np.asfortranarray(-np.triu(lu) * d.conj())
    device.trsm("R", "L", "C", "U", 1.0, lu, t_factor)
    below = block[width if comm.rank == root else 0 :]
    device.trsm("R", "U", "N", "N", 1.0, lu, below)
    part = _with_factor(t_factor, block)
    if comm.rank == root:
        block[:width] = np.tril(lu, -1) + d[:, np.newaxis] * r
        part[width : 2 * width] = np.tril(lu, -1) + np.eye(width, dtype=block.dtype)
    return part


def _eliminate(device: CpuDevice, a: np.ndarray, d: np.ndarray) -> None:
    """A - diag(d) := L U without pivoting, by halves, with the unit numbers d that make each pivot as large as can be."""
    n = len(a)
    if n > LEAF:
        half = n // 2
        _eliminate(device, a[:half, :half], d[:half])
        device.trsm("L", "L", "N", "U", 1.0, a[:half, :half], a[:half, half:])
        device.trsm("R", "U", "N", "N", 1.0, a[:half, :half], a[half:, :half])
        device.gemm(-1.0, a[half:, :half], a[:half, half:], 1.0, a[half:, half:])
        _eliminate(device, a[half:, half:], d[half:])
        return
    for j in range(n):
        size = abs(a[j, j])
        d[j] = -a[j, j] / size if size > 0 else -1
        a[j, j] -= d[j]
        a[j + 1 :, j] /= a[j, j]
        a[j + 1 :, j + 1 :] -= np.outer(a[j + 1 :, j], a[j, j + 1 :])


class _Reflection:
    """The product of columns with Q_k ("N") or Q_k^H ("C") of panel k."""

    def __init__(self, t: Tiles, k: int, part: np.ndarray, trans: str) -> None:
        width = t.width(k)
        self.t, self.top, self.k, self.trans = t, t.r(k), k, trans
        self.factor, self.v = part[:width], part[width:]

    def columns(self, local: np.ndarray, cut: slice) -> None:
        """Update some local columns now. Collective over the grid column."""
        self._subtract(local, cut, self._project(local, cut))

    def rest(self, x: Tiles, begin: int, trailing: WorkQueue) -> None:
        """Update the columns of `x` from local column `begin` on late, in pieces.

        On several grid rows the reduction of one stretch of columns overlaps the update of the stretch before.
        """
        local = x.local
        pieces = x.piece_columns(self.k, begin)
        if self.t.p == 1:
            for cut in pieces:
                trailing.put(lambda cut=cut: self.columns(local, cut))
            return
        for i in range(0, len(pieces), STRETCH):
            some = pieces[i : i + STRETCH]
            first = some[0].start
            w = self._project(local, slice(first, some[-1].stop), trailing.step)
            for cut in some:
                part = w[:, cut.start - first : cut.stop - first]
                trailing.put(lambda cut=cut, part=part: self._subtract(local, cut, part))

    def _project(self, local: np.ndarray, cut: slice, idle: Callable[[], bool] | None = None) -> np.ndarray:
        """Return V^H C of these columns, on every rank of the grid column."""
        w = np.empty((self.v.shape[1], cut.stop - cut.start), self.v.dtype, order="F")
        if len(self.v):
            self.t.device.gemm(1.0, self.v, local[self.top :, cut], 0.0, w, "C", "N")
        else:
            w[...] = 0
        self.t.col_comm.allreduce(w, idle=idle)
        return w

    def _subtract(self, local: np.ndarray, cut: slice, w: np.ndarray) -> None:
        """C -= V (op(T) W)."""
        x = np.empty_like(w, order="F")
        self.t.device.gemm(1.0, self.factor, w, 0.0, x, self.trans, "N")
        self.t.device.gemm(-1.0, self.v, x, 1.0, local[self.top :, cut])
