"""Cholesky factorisation of a Hermitian positive definite matrix, and the solve that follows it.

Right-looking with a lookahead of one panel. At step k, with A11 the diagonal tile,

    A11 = L11 L11^H,    L21 = A21 L11^-H,    A22 := A22 - L21 L21^H  (lower triangle).

The upper factor of A is the lower factor of the transposed view: A = U^H U is A^T = (U^T)(U^T)^H.

Source: LAPACK xPOTRF; J. Choi et al., ScaLAPACK PxPOTRF (1996); lookahead as in SLATE.
"""

import numpy as np

from pypto.layout.layout import Cyclic, Layout
from pypto.linalg._tiled import Panel, Tiles
from pypto.linalg._triangular import trsm, trsm_layout
from pypto.tiles.redistribute import redistribute
from pypto.tiles.tiled import TiledArray

__all__ = ["potrf", "potrs"]


def potrf(a: TiledArray, lower: bool) -> int:
    """A := its Cholesky factor in the named triangle, in place; the other triangle is not read.

    Returns
    -------
    info : int
        0, or the order of the first leading minor that is not positive definite; the same on every rank of the world.
    """
    world = a.world
    result = np.zeros(1, np.int64)
    if a.layout.holds(world.rank):
        result[0] = _potrf(Tiles(a if lower else a.transpose((1, 0))))
    if world.size > a.layout.grid.size:
        world.comm.allreduce(result, "max")
    return int(result[0])


def _potrf(t: Tiles) -> int:
    trailing = t.device.queue()
    panel, info = _start_panel(t, 0) if len(t) else None, 0
    for k in range(len(t)):
        panel.wait(trailing.step)  # meanwhile the trailing matrix is updated by panel k-1
        trailing.drain()
        info = info or int(panel.integers[0])
        if info or k + 1 == len(t):
            return info
        update = _Update(t, k, panel.part)
        if t.col == t.owner_col(k + 1):
            update.tile_column(k + 1)
        panel = _start_panel(t, k + 1)
        for j in range(k + 2, len(t)):
            if t.col == t.owner_col(j):
                trailing.put(lambda j=j, update=update: update.tile_column(j))
    return info


def _start_panel(t: Tiles, k: int) -> Panel:
    """Factor tile column k where it lies, and begin to broadcast what is below the diagonal along the grid rows."""
    width = t.width(k)
    panel = Panel(t, k, t.local.shape[0] - t.r(k + 1), width, 1)
    a21 = None
    if t.col == t.owner_col(k):
        column = slice(t.c(k), t.c(k) + width)
        l11 = np.zeros((width + 1, width), t.local.dtype, order="F")  # the last row carries info
        if t.row == t.owner_row(k):
            tile = t.local[t.r(k) : t.r(k) + width, column]
            low = np.tril_indices(width)
            l11[:width][low] = tile[low]
            failed = t.device.potrf("L", l11[:width])
            l11[width, 0] = failed
            tile[low] = l11[:width][low]
        t.col_comm.bcast(l11, t.owner_row(k))
        failed = int(l11[width, 0].real)
        panel.integers[0] = k * t.nb + failed if failed else 0
        a21 = t.local[t.r(k + 1) :, column]
        if not failed:
            t.device.trsm("R", "L", "C", "N", 1.0, l11[:width], a21)
    return panel.send(a21)


class _Update:
    """The update of the trailing matrix by panel k, one tile column at a time."""

    def __init__(self, t: Tiles, k: int, part: np.ndarray) -> None:
        self.t, self.k, self.left = t, k, part
        self.right = _transposed_panel(t, k, part)

    def tile_column(self, j: int) -> None:
        """A[j:, j] -= L[j:, k] L[j, k]^H."""
        t, width = self.t, self.t.width(j)
        at = t.c(j) - t.c(self.k + 1)
        begin = t.r(j) - t.r(self.k + 1)
        target = t.local[t.r(j) :, t.c(j) : t.c(j) + width]
        # right holds conj(L[j, k]), so that a transposition, which BLAS has for every storage order, is all that is left.
        t.device.gemm(-1.0, self.left[begin:], self.right[at : at + width], 1.0, target, "N", "T")


def _transposed_panel(t: Tiles, k: int, part: np.ndarray) -> np.ndarray:
    """Return conj(L[j, k]) for the tile columns j > k of this rank, from the rows that each grid row has."""
    rows, cols = t.a.layout.dims
    first = k + 1
    n = t.n - first * t.nb
    grid = t.a.layout.grid
    shape = (n, part.shape[1])
    order = t.a.layout.order
    have = Layout(shape, grid, (Cyclic(rows.axis, t.nb, (rows.src + first) % t.p), None), order=order)
    want = Layout(shape, grid, (Cyclic(cols.axis, t.nb, (cols.src + first) % t.q), None), order=order)
    moved = redistribute(TiledArray(have, part, t.a.world), want).local
    return moved.conj() if moved.dtype.kind == "c" else moved


def potrs(c: TiledArray, b: TiledArray, lower: bool) -> None:
    """B := A^-1 B from the Cholesky factor of A; B in the layout of ``trsm_layout`` for "N". Source: LAPACK xPOTRS."""
    turned = trsm_layout(c.layout, b.shape[1], "C")
    first, second = ("N", "C") if lower else ("C", "N")
    for trans in (first, second):
        if trans == "N":
            trsm(c, b, lower, "N", False)
        else:
            x = redistribute(b, turned)
            x = x.copy() if x is b else x
            trsm(c, x, lower, "C", False)
            back = redistribute(x, b.layout)
            b.local[...] = back.local
