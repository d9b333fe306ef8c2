"""The LU panel: one tile column factored with partial pivoting by the ranks of a grid column.

On one grid row LAPACK does it. On several the panel is split recursively into halves down to leaves of a few columns. In
a leaf one collective a column both finds the pivot and exchanges the two rows: every rank offers its best candidate row,
the owner of the diagonal row offers that, and each rank takes what it needs. All ranks keep the pivot rows, so that the
triangular solves between the halves need no message.

Source: F. Gustavson, Recursion leads to automatic variable blocking (1997); the combined message is HPL's.
"""

import numpy as np

from pypto.linalg._tiled import Tiles

__all__ = ["factor_panel"]

#: Columns of a leaf.
LEAF = 4


def factor_panel(t: Tiles, k: int, block: np.ndarray, pivots: np.ndarray) -> int:
    """Factor this rank's rows of tile column k in place; fill the global `pivots`; return info counted from 1."""
    if t.p == 1:
        ipiv = np.empty(len(pivots), np.int32)
        info = t.device.getrf(block, ipiv)
        pivots[...] = ipiv
        pivots += k * t.nb - 1
        return info + k * t.nb if info else 0
    panel = _Distributed(t, k, block, pivots)
    with np.errstate(all="ignore"):  # Inf and NaN go through as they do in LAPACK
        panel.factor(0, len(pivots))
    if panel.mine:
        block[: len(pivots)] = panel.top
    return panel.info


class _Distributed:
    """A panel over several grid rows. Columns are counted from its first; row j of `top` is row j of L11 and U11."""

    def __init__(self, t: Tiles, k: int, block: np.ndarray, pivots: np.ndarray) -> None:
        self.comm, self.device = t.col_comm, t.device
        self.block, self.pivots = block, pivots
        self.first = k * t.nb
        self.numbers = t.row_numbers()[t.r(k) :]  # global numbers of the block's rows, ascending
        self.owner = t.owner_row(k)
        self.mine = t.row == self.owner
        self.info = 0
        width = len(pivots)
        self.top = np.zeros((width, width), block.dtype, order="F")
        # What a rank offers: the size and the number of its best row, that row, and the diagonal row if it has it.
        self.offer = np.zeros(16 + 2 * width * block.itemsize, np.uint8)
        self.head = self.offer[:16].view(np.float64)
        self.rows = self.offer[16:].view(block.dtype).reshape(2, width)

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

    def column(self, j: int, end: int) -> None:
        """Choose the pivot of column j, exchange the rows, scale, and update the columns of the leaf up to `end`."""
        block, top = self.block, j if self.mine else 0
        at, size = _largest(block[top:, j])
        if size >= 0:
            self.rows[0] = block[top + at]
            self.head[1] = self.numbers[top + at]
        self.head[0] = size
        if self.mine:
            self.rows[1] = block[j]
        offers = self.comm.allgather(self.offer)
        heads = offers[:, :16].view(np.float64).tolist()
        rows = offers[:, 16:].view(block.dtype).reshape(len(heads), 2, -1)
        winner = min(range(len(heads)), key=lambda r: (-heads[r][0], heads[r][1]))
        diagonal = self.first + j
        size, row = heads[winner]
        if size < 0:  # nothing but NaN: stay on the diagonal
            row, pivot_row = diagonal, rows[self.owner, 1]
        else:
            pivot_row = rows[winner, 0]
        self.pivots[j] = row
        self.top[j] = pivot_row
        if row != diagonal and winner == self.comm.rank:
            block[top + at] = rows[self.owner, 1]
        pivot = pivot_row[j]
        if pivot == 0:
            self.info = self.info or diagonal + 1
            return
        below = block[top + self.mine :]
        below[:, j] /= pivot
        if j + 1 < end:
            self.device.gemm(-1.0, below[:, j : j + 1], self.top[j : j + 1, j + 1 : end], 1.0, below[:, j + 1 : end])

    def update(self, j0: int, j1: int, j2: int) -> None:
        """Apply columns j0 ... j1-1 to columns j1 ... j2-1: U12 = L11^-1 A12, on every rank, then A22 -= L21 U12."""
        u12 = self.top[j0:j1, j1:j2]
        self.device.trsm("L", "L", "N", "U", 1.0, self.top[j0:j1, j0:j1], u12)
        rest = self.block[j1 if self.mine else 0 :]
        self.device.gemm(-1.0, rest[:, j0:j1], u12, 1.0, rest[:, j1:j2])


def _largest(column: np.ndarray) -> tuple[int, float]:
    """Return where the first largest element is and its size, LAPACK's |re| + |im|; -1 where all are NaN or there are none."""
    if not len(column):
        return 0, -1.0
    size = np.abs(column) if column.dtype.kind == "f" else np.abs(column.real) + np.abs(column.imag)
    at = int(size.argmax())
    if np.isnan(size[at]):  # NaN counts as nothing, so that every rank decides alike
        size = np.where(np.isnan(size), -1.0, size)
        at = int(size.argmax())
    return at, float(size[at])
