"""LU factorisation with partial pivoting, and the solve that follows it.

Right-looking with a lookahead of one panel: while the rest of the trailing matrix is updated by panel k, panel k+1 is
already factored and on its way. At step k, with A11 the diagonal tile,

    P [A11; A21] = [L11; L21] U11,    U12 = L11^-1 (P A12),    A22 := P A22 - L21 U12.

Row interchanges of a panel are aggregated into one permutation. To the right of the panel they are applied to each piece of
columns just before it is updated; to the left, where nothing waits for them, all of them are applied at the end in one pass.

Source: LAPACK xGETRF; J. Choi et al., ScaLAPACK PxGETRF (1996); lookahead as in HPL and SLATE.
"""

from collections.abc import Callable

import numpy as np

from pypto.device.cpu import WorkQueue
from pypto.linalg._panel import factor_panel
from pypto.linalg._tiled import Panel, Tiles, exchange_rows, net_permutation, solve_unit_lower
from pypto.linalg._triangular import trsm
from pypto.tiles.tiled import TiledArray

__all__ = ["getrf", "getrs", "permute_rows"]

#: Pieces of the trailing update whose row interchanges and broadcast are one message, where there are several grid rows.
STRETCH = 4


def getrf(a: TiledArray, pivoting: str = "partial") -> tuple[np.ndarray, int]:
    """A := L and U with A = P L U, in place; `pivoting` "partial" or "tournament", see ``_panel``.

    Returns
    -------
    pivots : int64 array of min(m, n)
        Row i was interchanged with row pivots[i]; the same on every rank of the grid (empty elsewhere).
    info : int
        0, or 1 + the index of the first pivot that is exactly zero; the same on every rank of the world.
    """
    world = a.world
    result = np.zeros(1, np.int64)
    pivots = np.zeros(0, np.int64)
    if a.layout.holds(world.rank):
        pivots, result[0] = _getrf(Tiles(a), pivoting)
    if world.size > a.layout.grid.size:
        world.comm.allreduce(result, "max")
    return pivots, int(result[0])


def _getrf(t: Tiles, pivoting: str) -> tuple[np.ndarray, int]:
    steps = len(t)
    pivots = np.arange(min(t.m, t.n), dtype=np.int64)
    moves = []
    info = 0
    trailing = t.device.queue()
    panel = _start_panel(t, 0, pivoting) if steps else None
    for k in range(steps):
        panel.wait(trailing.step)  # meanwhile the trailing matrix is updated by panel k-1
        trailing.drain()
        width = t.width(k)
        pivots[k * t.nb : k * t.nb + width] = panel.integers[:width]
        info = info or int(panel.integers[width])
        source, target = net_permutation(k * t.nb, panel.integers[:width])
        moves.append((source, target))
        update = _Update(t, k, panel.part, source, target)
        begin = t.c(k) + width if t.col == t.owner_col(k) else t.c(k + 1)
        if k + 1 < steps:
            if t.col == t.owner_col(k + 1):
                update.columns(slice(begin, begin + t.width(k + 1)))
                begin += t.width(k + 1)
            panel = _start_panel(t, k + 1, pivoting)
        update.rest(begin, trailing)
    trailing.drain()
    _left_interchanges(t, moves)
    return pivots, info


def _start_panel(t: Tiles, k: int, pivoting: str) -> Panel:
    """Factor tile column k where it lies, and begin to broadcast it along the grid rows."""
    width = t.width(k)
    panel = Panel(t, k, t.local.shape[0] - t.r(k), width, width + 1)
    block = None
    if t.col == t.owner_col(k):
        block = t.local[t.r(k) :, t.c(k) : t.c(k) + width]
        panel.integers[width] = factor_panel(t, k, block, panel.integers[:width], pivoting)
    return panel.send(block)


class _Update:
    """The update of columns right of panel k: interchange rows, U12 = L11^-1 A12, A22 -= L21 U12."""

    def __init__(self, t: Tiles, k: int, part: np.ndarray, source: np.ndarray, target: np.ndarray) -> None:
        self.t, self.k = t, k
        self.source, self.target = source, target
        self.width = part.shape[1]
        self.diagonal = t.row == t.owner_row(k)
        self.l11 = part[: self.width] if self.diagonal else part[:0]
        self.l21 = part[self.width :] if self.diagonal else part
        self.top = t.r(k)

    def columns(self, cut: slice) -> None:
        """Update some local columns now. Collective over the grid column."""
        self._multiply(cut, self._solve(cut))

    def rest(self, begin: int, trailing: WorkQueue) -> None:
        """Update the local columns from `begin` on late, in pieces.

        On several grid rows the messages for one stretch of columns overlap the update of the stretch before.
        """
        t = self.t
        pieces = t.piece_columns(self.k, begin)
        if t.p == 1:
            for cut in pieces:
                trailing.put(lambda cut=cut: self.columns(cut))
            return
        for i in range(0, len(pieces), STRETCH):
            some = pieces[i : i + STRETCH]
            first = some[0].start
            u12 = self._solve(slice(first, some[-1].stop), trailing.step)
            for cut in some:
                part = u12[:, cut.start - first : cut.stop - first]
                trailing.put(lambda cut=cut, part=part: self._multiply(cut, part))

    def _solve(self, cut: slice, idle: Callable[[], bool] | None = None) -> np.ndarray:
        """Interchange rows and return U12 of these columns, on every rank of the grid column."""
        t = self.t
        block = t.local[:, cut]
        exchange_rows(t, block, self.source, self.target, idle)
        u12 = block[self.top : self.top + self.width]
        if self.diagonal:
            solve_unit_lower(t.device, self.l11, u12)
        if t.p == 1:
            return u12
        buffer = np.empty((self.width, block.shape[1]), block.dtype, order="F")
        if self.diagonal:
            buffer[...] = u12
        t.col_comm.bcast(buffer, t.owner_row(self.k), idle)
        return buffer

    def _multiply(self, cut: slice, u12: np.ndarray) -> None:
        begin = self.top + (self.width if self.diagonal else 0)
        self.t.device.gemm(-1.0, self.l21, u12, 1.0, self.t.local[begin:, cut])


def _left_interchanges(t: Tiles, moves: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Interchange the rows of L as all later panels say, tile column by tile column from the right, each in one pass."""
    total = np.arange(t.m, dtype=np.int64)
    for k in range(len(moves) - 1, 0, -1):
        source, target = moves[k]
        # total[target] is where step k's row ends up after all later steps: compose with what step k does first.
        before = np.arange(t.m, dtype=np.int64)
        before[target] = source
        total = before[total]
        if t.col == t.owner_col(k - 1):
            moved = np.nonzero(total != np.arange(t.m))[0]
            exchange_rows(t, t.local[:, t.c(k - 1) : t.c(k)], np.ascontiguousarray(total[moved]), moved)


def permute_rows(b: TiledArray, pivots: np.ndarray, forward: bool) -> None:
    """Interchange the rows of B, in place, as the factorisation did (`forward`) or back. Collective over B's grid."""
    if not b.layout.holds(b.world.rank):
        return
    source, target = net_permutation(0, pivots)
    exchange_rows(Tiles(b), b.local, *((source, target) if forward else (target, source)))


def getrs(lu: TiledArray, pivots: np.ndarray, b: TiledArray, trans: str) -> None:
    """B := op(A)^-1 B from the factors of A; B in the layout of ``trsm_layout``. Source: LAPACK xGETRS."""
    if trans == "N":
        permute_rows(b, pivots, True)
        trsm(lu, b, True, "N", True)
        trsm(lu, b, False, "N", False)
    else:
        trsm(lu, b, False, trans, False)
        trsm(lu, b, True, trans, True)
        permute_rows(b, pivots, False)
