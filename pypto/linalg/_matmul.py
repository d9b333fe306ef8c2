"""Distributed matrix product, C = op(A) op(B).

Four ways, chosen by the bytes that each moves:

``C``   C stays. For each panel of the inner dimension, columns of A are spread along the rows of the grid and rows of B along
        its columns; every rank adds their product to its part of C. The next panel travels while this one is multiplied.
``A``   A stays. Columns of B are brought to where A's columns are; the products are partial sums along the grid's rows.
``B``   B stays: the same as ``A`` for C^T = B^T A^T.
``K``   Both operands are cut along the inner dimension over all ranks; every rank's product is one summand of C.

Source: R. A. van de Geijn, J. Watts, SUMMA (1997); M. Schatz, R. van de Geijn, J. Poulson, Parallel matrix multiplication: a
systematic journey (2016).
"""

from collections.abc import Iterator
from functools import lru_cache
from math import prod

import numpy as np

from pypto.comm.comm import Request
from pypto.layout.grid import ProcessGrid
from pypto.layout.layout import Cyclic, Layout
from pypto.tiles.redistribute import Transfer, plan, redistribute, start
from pypto.tiles.tiled import TiledArray, World

__all__ = ["VARIANTS", "choose", "gemm", "result_layout"]

VARIANTS = ("C", "A", "B", "K")
#: Panels of the inner dimension are at least this wide where the operands are: GEMM runs near its peak from here on.
WIDTH = 512
#: Bytes of workspace that nobody minds.
SMALL = 1 << 27


@lru_cache(maxsize=1024)
def result_layout(a: Layout, b: Layout) -> Layout:
    """Return the layout of A @ B: rows as A's and columns as B's where they share a grid, else tiles on the larger's grid."""
    shape = (a.shape[0], b.shape[1])
    wider = a if prod(a.shape) >= prod(b.shape) else b
    rows, cols = a.dims[0], b.dims[1]
    if a.grid == b.grid and (rows is None or cols is None or rows.axis != cols.axis) and (rows or cols):
        return Layout(shape, a.grid, (rows, cols))
    grid = wider.grid
    if grid.ndim == 2:
        nb = next((d.nb for d in wider.dims if d is not None), 128)
        return Layout(shape, grid, (Cyclic(0, nb), Cyclic(1, nb)))
    if grid.ndim == 1 and grid.size > 1:
        # One grid axis: deal the longer side of the result.
        axis = 0 if shape[0] >= shape[1] else 1
        block = Cyclic(0, max(1, -(-shape[axis] // grid.size)))
        return Layout(shape, grid, (block, None) if axis == 0 else (None, block))
    return Layout(shape, grid, (None, None))


def _moved(src: Layout, dst: Layout) -> int:
    """Return the elements that the busiest rank receives."""
    return max((sum(m.size for m in plan(src, dst, r).recvs) for r in dst.grid.ranks), default=0)


def _panels_of(a: Layout, b: Layout, c: Layout) -> tuple[Layout, Layout]:
    """Return A with its columns whole along C's rows, and B with its rows whole along C's columns."""
    return Layout(a.shape, c.grid, (c.dims[0], None)), Layout(b.shape, c.grid, (None, c.dims[1]))


def _stay_layouts(a: Layout, b: Layout) -> tuple[Layout, Layout]:
    """Return, where A stays: B's rows as A's columns; C's rows as A's, partial along the grid axis of A's columns."""
    rows, cols = a.dims
    partial = () if cols is None or a.grid.shape[cols.axis] == 1 else (cols.axis,)
    return Layout(b.shape, a.grid, (cols, None)), Layout((a.shape[0], b.shape[1]), a.grid, (rows, None), partial)


def _split_layouts(a: Layout, b: Layout, grid: ProcessGrid) -> tuple[Layout, Layout, Layout]:
    """Return both operands cut along the inner dimension over all ranks, and the summands of C."""
    everyone = ProcessGrid.of((grid.size,), grid.ranks)
    inner = Cyclic(0, max(1, -(-a.shape[1] // grid.size)))
    partial = (0,) if grid.size > 1 else ()
    return (
        Layout(a.shape, everyone, (None, inner)),
        Layout(b.shape, everyone, (inner, None)),
        Layout((a.shape[0], b.shape[1]), everyone, (None, None), partial),
    )


@lru_cache(maxsize=1024)
def choose(a: Layout, b: Layout, c: Layout) -> tuple[str, dict[str, int]]:
    """Return the variant that moves the fewest elements to the busiest rank, and what each would move.

    A variant that needs more workspace than a quarter of operands and result is left out, unless it is ``C``, which
    works in panels.
    """
    size = a.grid.size
    pa, pb = _panels_of(a, b, c)
    moved = {"C": _moved(a, pa) + _moved(b, pb)}
    local = (prod(a.shape) + prod(b.shape) + prod(c.shape)) // max(size, 1)
    for name, x, y in (("A", a, b), ("B", b.transpose((1, 0)), a.transpose((1, 0)))):
        if x.partial:
            continue
        brought, summed = _stay_layouts(x, y)
        target = c if name == "A" else c.transpose((1, 0))
        work = brought.max_local_size() + 2 * summed.max_local_size()
        if work <= local // 4 or work <= 1 << 16:
            moved[name] = _moved(y, brought) + _moved(summed, target)
    ka, kb, kc = _split_layouts(a, b, a.grid if a.grid.size >= b.grid.size else b.grid)
    if kc.max_local_size() * 2 <= local // 4 or kc.max_local_size() <= 1 << 16:
        moved["K"] = _moved(a, ka) + _moved(b, kb) + _moved(kc, c)
    return min(moved, key=lambda v: (moved[v], VARIANTS.index(v))), moved


def gemm(
    a: TiledArray, b: TiledArray, layout: Layout, *, conj_a: bool = False, conj_b: bool = False, variant: str | None = None
) -> TiledArray:
    """Return op(A) @ op(B) in `layout`, where op conjugates or not; transpositions are views of the operands. Collective.

    Cost: 2 m n k flops; elements moved as :func:`choose` says; workspace about a tenth of operands and result.
    """
    world = a.world
    if world.size == 1:
        out = TiledArray.empty(layout, a.dtype, world)
        _product(world, a.local, b.local, out.local, conj_a, conj_b, False)
        return out
    variant = variant or choose(a.layout, b.layout, layout)[0]
    if variant == "C":
        return _stationary_c(a, b, layout, conj_a, conj_b)
    if variant == "A":
        return _stationary_a(a, b, layout, conj_a, conj_b)
    if variant == "B":  # C^T = B^T A^T
        swapped = _stationary_a(b.transpose((1, 0)), a.transpose((1, 0)), layout.transpose((1, 0)), conj_b, conj_a)
        return swapped.transpose((1, 0))
    ka, kb, kc = _split_layouts(
        a.layout, b.layout, a.layout.grid if a.layout.grid.size >= b.layout.grid.size else b.layout.grid
    )
    summands = TiledArray.empty(kc, a.dtype, world)
    _product(world, redistribute(a, ka).local, redistribute(b, kb).local, summands.local, conj_a, conj_b, False)
    return redistribute(summands, layout)


def _stationary_c(a: TiledArray, b: TiledArray, layout: Layout, conj_a: bool, conj_b: bool) -> TiledArray:
    """For panels K: C += A[:, K] B[K, :], the next panels under way while these are multiplied."""
    world, k = a.world, a.shape[1]
    c = TiledArray.empty(layout, a.dtype, world)
    queue = world.device.queue()
    width = panel_width(a.layout, b.layout, layout, a.dtype.itemsize)
    if _dealt_alike(a.layout, b.layout, layout):
        panels = _owned_panels(a, b, width)
    else:
        panels = (_Panels(a, b, layout, k0, min(width, k - k0)) for k0 in range(0, k, width))
    if k == 0:
        c.local[...] = 0
    here, first = next(panels, None), True
    while here is not None:
        here.wait()
        coming = next(panels, None)  # begins to travel now
        for piece in _pieces(c.local.shape, here.width, a.dtype):
            queue.put(_Update(world, here, c.local, piece, conj_a, conj_b, not first))
        while queue.step():
            if coming is not None:
                coming.test()
        here, first = coming, False
    return c


def _dealt_alike(a: Layout, b: Layout, c: Layout) -> bool:
    """Return whether C lies as A's rows and B's columns do, and both deal the inner dimension alike.

    Then the columns of A at grid column r and the rows of B at grid row r are the same indices, and a panel is a slice of
    what r has.
    """
    if not (a.grid == b.grid == c.grid and a.grid.ndim == 2 and a.dims[0] == c.dims[0] and b.dims[1] == c.dims[1]):
        return False
    x, y = a.dims[1], b.dims[0]
    square = a.grid.shape[0] == a.grid.shape[1] > 1
    return square and x is not None and y is not None and (x.axis, y.axis, x.nb, x.src) == (1, 0, y.nb, y.src)


def _owned_panels(a: TiledArray, b: TiledArray, width: int) -> Iterator["_OwnedPanels"]:
    """Give the panels that grid column and row 0 own, then those of 1, and so on; none to a rank outside the grid."""
    if a.layout.holds(a.world.rank):
        for r in range(a.layout.extent(1)):
            n = len(a.layout.axis_part(1, r))
            for begin in range(0, n, width):
                yield _OwnedPanels(a, b, r, slice(begin, min(begin + width, n)))


class _OwnedPanels:
    """A[:, K] from grid column r along the rows, B[K, :] from grid row r along the columns, for local indices K of r."""

    def __init__(self, a: TiledArray, b: TiledArray, r: int, cut: slice) -> None:
        self.width = cut.stop - cut.start
        self.requests: list[Request] = []
        rows, cols = a.layout.grid.coords(a.world.rank)
        self.a = self._travel(a, "row", r, a.local[:, cut] if cols == r else None, (a.local.shape[0], self.width))
        self.b = self._travel(b, "col", r, b.local[cut] if rows == r else None, (self.width, b.local.shape[1]))

    def _travel(self, x: TiledArray, way: str, root: int, mine: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
        order = x.layout.order
        if mine is None:
            panel = x.world.device.empty(shape, x.dtype, order)
        elif mine.transpose(order).flags.c_contiguous:
            panel = mine
        else:
            panel = np.ascontiguousarray(mine.transpose(order)).transpose(order)  # orders of two axes are their own inverse
        self.requests.append(x.comm(way).ibcast(panel, root))
        return panel

    def test(self) -> None:
        for r in self.requests:
            r.test()

    def wait(self) -> None:
        for r in self.requests:
            r.wait()


class _Panels:
    """A[:, K] and B[K, :] on their way to the ranks of C; where nothing moves they are views."""

    def __init__(self, a: TiledArray, b: TiledArray, c: Layout, k0: int, width: int) -> None:
        self.width = width
        self.transfers: list[Transfer] = []
        self.a = self._panel(a, Layout((a.shape[0], width), c.grid, (c.dims[0], None)), 1, k0)
        self.b = self._panel(b, Layout((width, b.shape[1]), c.grid, (None, c.dims[1])), 0, k0)

    def _panel(self, x: TiledArray, layout: Layout, axis: int, k0: int) -> np.ndarray:
        other = 1 - axis
        if x.layout.same_ownership(Layout(x.shape, layout.grid, tuple(layout.dims[d] if d == other else None for d in (0, 1)))):
            cut = slice(k0, k0 + self.width)
            return x.local[:, cut] if axis == 1 else x.local[cut, :]
        # The panel takes the storage order of its operand, so that packing copies runs.
        panel = TiledArray.empty(layout.replace(order=x.layout.order), x.dtype, x.world)
        along = (self.width, k0, 1, 0, 1)
        across = (x.shape[other], 0, 1, 0, 1)
        self.transfers.append(start(x, panel, (across, along) if axis == 1 else (along, across)))
        return panel.local

    def test(self) -> None:
        for t in self.transfers:
            t.test()

    def wait(self) -> None:
        for t in self.transfers:
            t.wait()


class _Update:
    """One piece of C += A[:, K] B[K, :]: some columns of the local part."""

    __slots__ = ("accumulate", "args", "piece")

    def __init__(self, world, panels, c, piece, conj_a, conj_b, accumulate) -> None:
        self.args = (world, panels, c, conj_a, conj_b)
        self.piece, self.accumulate = piece, accumulate

    def __call__(self) -> None:
        world, panels, c, conj_a, conj_b = self.args
        _product(world, panels.a, panels.b[:, self.piece], c[:, self.piece], conj_a, conj_b, self.accumulate)


def _pieces(shape: tuple[int, ...], k: int, dtype: np.dtype) -> list[slice]:
    """Cut the columns of C into pieces between which the messages under way make progress.

    A piece is at least 512 columns wide, since GEMM packs all of its left operand again for each.
    """
    m, n = shape
    if m == 0 or n == 0:
        return []
    columns = max(1024, int(2e8 // (2 * m * max(k, 1))))
    return [slice(j, min(j + columns, n)) for j in range(0, n, columns)]


@lru_cache(maxsize=1024)
def panel_width(a: Layout, b: Layout, c: Layout, itemsize: int) -> int:
    """Return the width of panels: WIDTH, or twice that for four-byte elements where the workspace stays small.

    Two pairs of panels live at a time, one of them with its messages. Wider panels are taken while they need less than a
    tenth of operands and result.
    """
    k = max(a.shape[1], 1)
    pa, pb = _panels_of(a, b, c)
    column = 3 * itemsize * (pa.max_local_size() + pb.max_local_size()) // k
    budget = itemsize * (a.max_local_size() + b.max_local_size() + c.max_local_size()) // 10
    wide = 2 * WIDTH if itemsize <= 4 and 2 * WIDTH * column <= SMALL else WIDTH
    return min(k, max(wide, budget // max(column, 1)))


def _stationary_a(a: TiledArray, b: TiledArray, layout: Layout, conj_a: bool, conj_b: bool) -> TiledArray:
    """C = A B with B brought to A, and the partial sums brought to C."""
    brought, summed = _stay_layouts(a.layout, b.layout)
    summands = TiledArray.empty(summed, a.dtype, a.world)
    _product(a.world, a.local, redistribute(b, brought).local, summands.local, conj_a, conj_b, False)
    return redistribute(summands, layout)


def _product(world: World, a: np.ndarray, b: np.ndarray, c: np.ndarray, conj_a: bool, conj_b: bool, accumulate: bool) -> None:
    """c := or += op(a) op(b) on local parts, by BLAS where it has the type."""
    if c.size == 0:
        return
    if a.dtype.char not in "fdFD":
        if a.shape[1] == 0:
            c[...] = c if accumulate else 0
        elif accumulate:
            c += (a @ b).astype(c.dtype, copy=False)
        else:
            c[...] = a @ b
        return
    gemm_ = world.device.gemm
    if conj_a or conj_b:
        ta, a = _conjugated(a, conj_a)
        tb, b = _conjugated(b, conj_b)
        if c.flags.f_contiguous or c.strides[0] == c.itemsize:
            gemm_(1.0, a, b, 1.0 if accumulate else 0.0, c, ta, tb)
            return
        product = world.device.empty(c.shape, c.dtype, (1, 0))
        gemm_(1.0, a, b, 0.0, product, ta, tb)
        c[...] = c + product if accumulate else product
        return
    gemm_(1.0, a, b, 1.0 if accumulate else 0.0, c)


def _conjugated(x: np.ndarray, conj: bool) -> tuple[str, np.ndarray]:
    """Return an op of BLAS and an operand for conj(x): a C-ordered one is the conjugate transpose of its memory.

    An F-ordered one is conjugated in a copy: of a panel, except where a single rank multiplies whole operands.
    """
    if not conj:
        return "N", x
    if x.strides[1] == x.itemsize and x.strides[0] != x.itemsize:
        return "C", x.T
    return "N", x.conj()
