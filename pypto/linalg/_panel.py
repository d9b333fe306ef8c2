"""The LU panel: one tile column factored with partial pivoting by the ranks of a grid column.

On one grid row LAPACK does it. On several the panel is split recursively into halves down to leaves of a few columns. In
a leaf one collective a column both finds the pivot and exchanges the two rows: every rank offers its best candidate row,
the owner of the diagonal row offers that, and each rank takes what it needs.

Source: F. Gustavson, Recursion leads to automatic variable blocking (1997); the combined message is HPL's.
"""

import numpy as np

from pypto.linalg._tiled import Tiles

__all__ = ["factor_panel"]

#: Columns of a leaf.
LEAF = 16


def factor_panel(t: Tiles, k: int, block: np.ndarray, pivots: np.ndarray) -> int:
    """Factor this rank's rows of tile column k in place; fill the global `pivots`; return info counted from 1."""
    if t.p == 1:
        ipiv = np.empty(len(pivots), np.int32)
        info = t.device.getrf(block, ipiv)
        pivots[...] = ipiv
        pivots += k * t.nb - 1
        return info + k * t.nb if info else 0
    panel = _Distributed(t, k, block, pivots)
    panel.factor(0, len(pivots))
    return panel.info


class _Distributed:
    """A panel over several grid rows."""

    def __init__(self, t: Tiles, k: int, block: np.ndarray, pivots: np.ndarray) -> None:
        self.t, self.block, self.pivots = t, block, pivots
        self.first = k * t.nb
        self.numbers = t.row_numbers()[t.r(k) :]  # global numbers of the block's rows, ascending
        self.owner = t.owner_row(k)
        self.info = 0
        width = block.shape[1]
        self.offer = np.zeros(1, [("size", "f8"), ("row", "i8"), ("best", block.dtype, width), ("diagonal", block.dtype, width)])

    def factor(self, j0: int, j1: int) -> None:
        """Factor columns j0 ... j1-1, to which everything on their left has been applied."""
        if j1 - j0 <= LEAF:
            for j in range(j0, j1):
                self.column(j, j1)
            return
        middle = (j0 + j1) // 2
        self.factor(j0, middle)
        self.update(j0, middle, j1)
        self.factor(middle, j1)

    def below(self, j: int) -> int:
        """Local row at which the global rows from diagonal row j on begin."""
        return int(np.searchsorted(self.numbers, self.first + j))

    def column(self, j: int, end: int) -> None:
        """Choose the pivot of column j, exchange the rows, scale, and update the leaf's columns up to `end`."""
        block, offer = self.block, self.offer
        top = self.below(j)
        mine = self.t.row == self.owner
        offer["size"], offer["row"] = -1.0, np.iinfo(np.int64).max
        candidates = block[top:, j]
        if len(candidates):
            # LAPACK's measure: |re| + |im|; NaN counts as nothing, so that every rank decides alike.
            size = np.abs(candidates) if block.dtype.kind == "f" else np.abs(candidates.real) + np.abs(candidates.imag)
            at = int(np.argmax(np.where(np.isnan(size), -1.0, size)))
            offer["size"], offer["row"] = (-1.0 if np.isnan(size[at]) else size[at]), self.numbers[top + at]
            offer["best"] = block[top + at]
        if mine:
            offer["diagonal"] = block[j]
        offers = self.t.col_comm.allgather(offer.view(np.uint8)).view(offer.dtype).reshape(-1)
        sizes = offers["size"]
        winner = int(np.lexsort((offers["row"], -sizes))[0])
        diagonal = offers["diagonal"][self.owner]
        if sizes[winner] < 0:  # nothing but NaN: stay on the diagonal
            row, pivot_row = self.first + j, diagonal
        else:
            row, pivot_row = int(offers["row"][winner]), offers["best"][winner]
        self.pivots[j] = row
        if row != self.first + j:
            if mine:
                block[j] = pivot_row
            at = int(np.searchsorted(self.numbers, row))
            if at < len(self.numbers) and self.numbers[at] == row:
                block[at] = diagonal
        if pivot_row[j] == 0:
            self.info = self.info or self.first + j + 1
            return
        rows = block[self.below(j + 1) :]
        rows[:, j] /= pivot_row[j]
        rows[:, j + 1 : end] -= np.multiply.outer(rows[:, j], pivot_row[j + 1 : end])

    def update(self, j0: int, j1: int, j2: int) -> None:
        """Apply columns j0 ... j1-1 to columns j1 ... j2-1: U12 = L11^-1 A12 where the diagonal is, A22 -= L21 U12."""
        t, block = self.t, self.block
        u12 = np.empty((j1 - j0, j2 - j1), block.dtype, order="F")
        if t.row == self.owner:
            t.device.trsm("L", "L", "N", "U", 1.0, block[j0:j1, j0:j1], block[j0:j1, j1:j2])
            u12[...] = block[j0:j1, j1:j2]
        t.col_comm.bcast(u12, self.owner)
        begin = self.below(j1)
        t.device.gemm(-1.0, block[begin:, j0:j1], u12, 1.0, block[begin:, j1:j2])
