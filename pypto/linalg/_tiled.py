"""A square-tiled matrix as one rank of its grid sees it: local offsets of global tiles, owners, and panels on their way."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from pypto.comm.comm import Comm, Request
from pypto.config import settings
from pypto.device.cpu import CpuDevice
from pypto.layout.layout import numroc
from pypto.linalg._shared import LEAST, SharedPlaces, on_one_node
from pypto.tiles.tiled import TiledArray

__all__ = ["Panel", "Tiles", "exchange_rows", "net_permutation", "solve_unit_lower"]

#: The message that says that a shared panel is complete.
READY = np.ones(1, np.int64)
#: Order below which a triangle is left to BLAS, whose solve on a thin block runs at a third of the rate of its product.
SMALL = 64
#: Flops of a piece of a trailing update, and its least number of columns.
PIECE_FLOPS = 1e8
MIN_PIECE = 256

_said = False


class Tiles:
    """Index arithmetic of a matrix in nb x nb tiles on a p x q grid, for this rank.

    Works for a transposed view as well: the grid axis that deals the rows is whichever the layout says.
    """

    def __init__(self, a: TiledArray) -> None:
        rows, cols = a.layout.dims
        grid = a.layout.grid
        self.a, self.local, self.device = a, a.local, a.world.device
        self.m, self.n = a.shape
        self.nb = rows.nb
        self.p, self.q = grid.shape[rows.axis], grid.shape[cols.axis]
        self._rows, self._cols = rows, cols
        here = grid.coords(a.world.rank)
        self.row, self.col = here[rows.axis], here[cols.axis]
        #: The ranks of this grid row (that hold the same rows of the matrix), and of this grid column.
        self.row_comm: Comm = a.world.grid_comm(grid, (cols.axis,))
        self.col_comm: Comm = a.world.grid_comm(grid, (rows.axis,))
        #: "F" or "C": which axis of the local part is contiguous.
        self.storage: Literal["C", "F"] = "F" if a.layout.order == (1, 0) else "C"
        self._memory: list[np.ndarray] | None = None
        self._shared: SharedPlaces | None = None

    def __len__(self) -> int:
        """Number of diagonal tiles."""
        return -(-min(self.m, self.n) // self.nb)

    def width(self, k: int) -> int:
        """Order of diagonal tile k."""
        return min(self.nb, min(self.m, self.n) - k * self.nb)

    def owner_row(self, k: int) -> int:
        """Grid row that holds tile row k."""
        return (k + self._rows.src) % self.p

    def owner_col(self, k: int) -> int:
        """Grid column that holds tile column k."""
        return (k + self._cols.src) % self.q

    def r(self, k: int) -> int:
        """Local row at which tile rows k, k+1, ... begin."""
        return numroc(min(k * self.nb, self.m), self.nb, self.row, self._rows.src, self.p)

    def rows_of(self, k: int, row: int) -> int:
        """Number of rows from tile row k on that grid row `row` holds."""
        whole, above = (numroc(i, self.nb, row, self._rows.src, self.p) for i in (self.m, min(k * self.nb, self.m)))
        return whole - above

    def c(self, k: int) -> int:
        """Local column at which tile columns k, k+1, ... begin."""
        return numroc(min(k * self.nb, self.n), self.nb, self.col, self._cols.src, self.q)

    def row_place(self, i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Grid row and local row of global rows."""
        return self.a.layout.to_local(0, i)

    def row_numbers(self) -> np.ndarray:
        """Global numbers of the local rows."""
        return self.a.layout.indices(0, self.a.world.rank)

    def panel_memory(self, root: int, nbytes: int) -> tuple[np.ndarray, bool]:
        """Return memory for a panel from grid column `root`, in turn from two places, and whether all map the same."""
        if self._memory is None:
            self._memory = [np.empty(0, np.uint8)] * 2
            # The same along the grid row; a QR panel has nb rows of its own in front.
            largest = self.nb * ((self.local.shape[0] + self.nb) * self.local.itemsize + 8) + 128
            if settings.share_memory and self.row_comm.size > 1 and largest >= LEAST:
                self._shared = SharedPlaces.open(self.row_comm, largest)
                self._say_if_private()
        if self._shared is not None:
            return self._shared.next(root, nbytes), True
        self._memory.reverse()
        if len(self._memory[0]) < nbytes:
            self._memory[0] = np.empty(max(nbytes, 2 * len(self._memory[0])), np.uint8)
        return self._memory[0][:nbytes], False

    def _say_if_private(self) -> None:
        """Say once that the ranks of one node cannot read each other's memory, where that is so."""
        global _said
        if self._shared is None and not _said and on_one_node(self.row_comm):
            _said = True
            text = "the ranks of a node cannot map each other's memory: panels are sent as messages, which is slower"
            self.a.world.incidents.warn(RuntimeWarning, text)

    def piece_columns(self, k: int, begin: int) -> list[slice]:
        """Cut the local columns from `begin` on into pieces whose update by panel k takes a few milliseconds.

        The same on all ranks of a grid column. GEMM packs all of L21 again for each piece, so it must not be too narrow.
        """
        height = max((self.m - k * self.nb) // self.p, 1)
        columns = max(MIN_PIECE, int(PIECE_FLOPS // (2 * height * self.nb)))
        end = self.local.shape[1]
        return [slice(j, min(j + columns, end)) for j in range(begin, end, columns)]


class Panel:
    """A tile column on its way along the grid rows: this grid row's part of it, with some integers in front.

    Two panels of a matrix live at a time; the third takes the memory of the first.
    """

    def __init__(self, tiles: Tiles, k: int, rows: int, width: int, integers: int) -> None:
        head = -(-integers * 8 // 64) * 64
        dtype = tiles.local.dtype
        self._comm, self._root = tiles.row_comm, tiles.owner_col(k)
        self._requests: list[Request] = []
        alone = self._comm.size == 1
        nbytes = head if alone else head + rows * width * dtype.itemsize
        self._buffer, self._shared = tiles.panel_memory(self._root, nbytes)
        self.integers = self._buffer[: integers * 8].view(np.int64)
        if not alone:
            self.part = self._buffer[head:].view(dtype).reshape((rows, width), order=tiles.storage)

    def send(self, block: np.ndarray | None) -> "Panel":
        """Begin to broadcast `block` from the grid column that owns it; the others give None. Alone, the block is the part."""
        comm, root = self._comm, self._root
        if comm.size == 1:
            self.part = block
            return self
        if block is not None:
            self.part[...] = block
        if not self._shared:
            self._requests = [comm.ibcast(self._buffer, root)]
        elif comm.rank == root:
            comm.counter.add(0, (comm.size - 1) * self._buffer.nbytes)
            self._requests = [comm.isend(READY, c) for c in range(comm.size) if c != root]
        else:
            self._requests = [comm.irecv(np.empty_like(READY), root)]
        return self

    def wait(self, idle: Callable[[], bool] | None = None) -> "Panel":
        """Return when the panel is here."""
        for request in self._requests:
            request.wait(idle)
        self._requests = []
        return self


def solve_unit_lower(device: CpuDevice, a: np.ndarray, b: np.ndarray) -> None:
    """B := A^-1 B, A unit lower triangular, by halves."""
    if len(a) <= SMALL:
        device.trsm("L", "L", "N", "U", 1.0, a, b)
        return
    half = len(a) // 2
    solve_unit_lower(device, a[:half, :half], b[:half])
    device.gemm(-1.0, a[half:, :half], b[:half], 1.0, b[half:])
    solve_unit_lower(device, a[half:, half:], b[half:])


def net_permutation(first: int, pivots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (source, target): what interchanging rows first+i and pivots[i] in turn does to the rows that move at all."""
    now: dict[int, int] = {}
    for i, p in enumerate(pivots.tolist(), first):
        if p != i:
            now[i], now[p] = now.get(p, p), now.get(i, i)
    moved = [(s, t) for t, s in now.items() if s != t]
    pairs = np.array(moved, np.int64).reshape(-1, 2)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def exchange_rows(
    tiles: Tiles,
    local: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    idle: Callable[[], bool] | None = None,
) -> None:
    """local[target, :] = local[source, :] for global row numbers, at once; `local` is some columns of the local part.

    Collective over the grid column. One message to each grid row that takes rows of this one.
    """
    if len(source) == 0 or local.shape[1] == 0:
        return
    from_row, s = tiles.row_place(source)
    to_row, t = tiles.row_place(target)
    if tiles.p == 1:
        tiles.device.laswp(local, s, t)
        return
    comm, me, copy = tiles.col_comm, tiles.row, tiles.device.copy_indexed
    columns = np.arange(local.shape[1], dtype=np.int64)
    incoming, outgoing = [], []
    for peer in range(tiles.p):
        if peer == me:
            continue
        rows = t[(to_row == me) & (from_row == peer)]
        if len(rows):
            buffer = np.empty((len(rows), len(columns)), local.dtype, order="F")
            incoming.append((comm.irecv(buffer, peer), rows, buffer))
        rows = s[(from_row == me) & (to_row == peer)]
        if len(rows):
            buffer = np.empty((len(rows), len(columns)), local.dtype, order="F")
            copy(buffer, (np.arange(len(rows)), columns), local, (rows, columns))
            outgoing.append((comm.isend(buffer, peer), buffer))
    stay = (from_row == me) & (to_row == me)
    tiles.device.laswp(local, s[stay], t[stay])
    for request, rows, buffer in incoming:
        request.wait(idle)
        copy(local, (rows, columns), buffer, (np.arange(len(rows)), columns))
    for request, _ in outgoing:
        request.wait(idle)
