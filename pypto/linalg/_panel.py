"""The LU panel: one tile column factored with partial pivoting by the ranks of a grid column.

On one grid row LAPACK does it. On several, with partial pivoting, the panel is split recursively into halves down to leaves
of a few columns. In a leaf one collective a column both finds the pivot and exchanges the two rows: every rank offers its
best candidate row, the owner of the diagonal row offers that, and each rank takes what it needs. All ranks keep the pivot
rows, so that the triangular solves between the halves need no message.

With a tournament every rank offers as many rows as the panel has columns, those that LAPACK would choose from its own, and
LAPACK chooses the pivots from all offers: three messages a panel, and pivots that are as good in practice but not the same.

Source: F. Gustavson, Recursion leads to automatic variable blocking (1997); the combined message is HPL's; L. Grigori,
J. Demmel, H. Xiang, CALU: a communication optimal LU factorization algorithm (2011).
"""

import numpy as np

from pypto.linalg._tiled import Tiles, exchange_rows, net_permutation

__all__ = ["factor_panel"]

#: Columns of a leaf.
LEAF = 4


def factor_panel(t: Tiles, k: int, block: np.ndarray, pivots: np.ndarray, pivoting: str) -> int:
    """Factor this rank's rows of tile column k in place; fill the global `pivots`; return info counted from 1."""
    if t.p == 1:
        ipiv = np.empty(len(pivots), np.int32)
        info = t.device.getrf(block, ipiv)
        pivots[...] = ipiv
        pivots += k * t.nb - 1
        return info + k * t.nb if info else 0
    if pivoting == "tournament" and _tournament(t, k, block, pivots):
        return 0
    panel = _Distributed(t, k, block, pivots)
    with np.errstate(all="ignore"):  # Inf and NaN go through as they do in LAPACK
        panel.factor(0, len(pivots))
    if panel.mine:
        block[: len(pivots)] = panel.top
    return panel.info


def _tournament(t: Tiles, k: int, block: np.ndarray, pivots: np.ndarray) -> bool:
    """Factor the panel with pivots from a tournament; return False, and leave it, where one of them is zero or NaN."""
    device, comm, width = t.device, t.col_comm, len(pivots)
    numbers = t.row_numbers()[t.r(k) :]
    mine = _winners(device, block, width)[0]
    offer = np.zeros(8 * width + width * width * block.itemsize, np.uint8)
    heads, rows = offer[: 8 * width].view(np.int64), offer[8 * width :].view(block.dtype).reshape(width, width)
    heads[:] = -1
    heads[: len(mine)], rows[: len(mine)] = numbers[mine], block[mine]
    offers = comm.allgather(offer)
    heads = np.ascontiguousarray(offers[:, : 8 * width]).view(np.int64).reshape(-1)
    rows = np.ascontiguousarray(offers[:, 8 * width :]).view(block.dtype).reshape(-1, width)
    chosen, factors = _winners(device, rows[heads >= 0], width)
    top = np.asfortranarray(factors[:width])
    numbers = heads[heads >= 0][chosen]
    root = t.owner_row(k)
    comm.bcast(top, root)  # processors may round differently: one decides
    comm.bcast(numbers, root)
    d = np.diag(top)
    if not (np.isfinite(d) & (d != 0)).all():
        return False
    pivots[...] = _interchanges(k * t.nb, numbers)
    column = t.local[:, t.c(k) : t.c(k) + width]
    exchange_rows(t, column, *net_permutation(k * t.nb, pivots))
    if t.row == root:
        block[:width] = top
    device.trsm("R", "U", "N", "N", 1.0, top, block[width if t.row == root else 0 :])
    return True


def _winners(device, rows: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows LAPACK's pivoting brings to the top, in order, and the factors."""
    factors = np.array(rows, order="F")
    count = min(len(rows), width)
    ipiv = np.empty(max(count, 1), np.int32)
    device.getrf(factors, ipiv)
    order = np.arange(len(rows))
    for i, p in enumerate((ipiv[:count] - 1).tolist()):
        order[[i, p]] = order[[p, i]]
    return order[:count], factors


def _interchanges(first: int, chosen: np.ndarray) -> list[int]:
    """Return the interchanges that bring the rows `chosen` to first, first+1, ... in turn."""
    place: dict[int, int] = {}  # where a row is, and which row is there, where that is not its own
    held: dict[int, int] = {}
    pivots = []
    for i, row in enumerate(chosen.tolist(), first):
        at, other = place.get(row, row), held.get(i, i)
        pivots.append(at)
        place[other], held[at] = at, other
        place[row], held[i] = i, row
    return pivots


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
