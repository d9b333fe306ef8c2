"""Moving data between layouts: a pure plan, then a few large messages.

``plan(src, dst, rank)`` says which elements of this rank's part go to which rank and where. Ownership is a product over
the axes, so each axis is cut on its own into *segments*: maximal intervals whose elements have one owner in the source
and one in the destination. A message between two ranks is the product of their common segments, packed in the storage
order of the destination.

A *region* copies ``dst[d0 + ds*t] = src[s0 + ss*t]`` for ``t = 0 ... count-1`` along every axis. It makes slicing with any
step, concatenation, panels of a matrix product and whole-array redistribution one mechanism.

Source: the two-dimensional block-cyclic redistribution of Prylli and Tourancheau (1997), per axis and for any step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from pypto.comm.comm import Comm
from pypto.layout.layout import Layout
from pypto.tiles.tiled import TiledArray

__all__ = ["Move", "Plan", "Transfer", "plan", "redistribute", "start", "whole"]

#: Along one axis: count, source start, source step, destination start, destination step.
AxisRegion = tuple[int, int, int, int, int]
Region = tuple[AxisRegion, ...]


def whole(shape: tuple[int, ...]) -> Region:
    """Return the region that is all of an array of that shape."""
    return tuple((n, 0, 1, 0, 1) for n in shape)


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One message, or the part that stays: elements `src` of the sender's part become elements `dst` of the receiver's."""

    peer: int
    src: tuple[np.ndarray | slice, ...]
    dst: tuple[np.ndarray | slice, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements moved."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What one rank sends, receives and keeps. `add` says that the parts received are summands."""

    sends: tuple[Move, ...]
    recvs: tuple[Move, ...]
    local: tuple[Move, ...]
    add: bool
    order: tuple[int, ...]

    @property
    def messages(self) -> int:
        """Messages that this rank sends."""
        return len(self.sends)

    @property
    def elements(self) -> int:
        """Elements that this rank sends."""
        return sum(m.size for m in self.sends)


class _Axis:
    """The segments of one axis: for each the owner's coordinate and the first local index, in source and destination."""

    __slots__ = ("dst_step", "length", "src_step", "table")

    def __init__(self, src: Layout, dst: Layout, axis: int, region: AxisRegion) -> None:
        count, s0, ss, d0, ds = region
        self.src_step, self.dst_step = ss, ds
        cuts = [np.array([0, count], np.int64)]
        for layout, first, step in ((src, s0, ss), (dst, d0, ds)):
            dim = layout.dims[axis]
            if dim is not None and layout.extent(axis) > 1:
                cuts.append(_tile_cuts(dim.nb, first, step, count))
        t = np.unique(np.concatenate(cuts)) if len(cuts) > 1 else cuts[0]
        first, self.length = t[:-1], np.diff(t)
        if count == 0:
            first, self.length = first[:0], self.length[:0]
        cs, ils = src.to_local(axis, s0 + ss * first)
        cd, ild = dst.to_local(axis, d0 + ds * first)
        self.table: dict[tuple[int, int], tuple] = {}
        for pair in sorted(set(zip(cs.tolist(), cd.tolist(), strict=True))):
            pick = (cs == pair[0]) & (cd == pair[1])
            length = self.length[pick]
            self.table[pair] = (
                _index(ils[pick], length, ss),
                _index(ild[pick], length, ds),
                int(length.sum()),
            )

    def sources(self, cd: int) -> list[int]:
        """Return the source coordinates that hold something of destination coordinate `cd`."""
        return [s for s, d in self.table if d == cd]


def _tile_cuts(nb: int, first: int, step: int, count: int) -> np.ndarray:
    """Return the t at which ``first + step*t`` enters another tile of nb indices."""
    if count == 0:
        return np.empty(0, np.int64)
    last = first + step * (count - 1)
    low, high = min(first, last), max(first, last)
    bounds = np.arange(low // nb + 1, high // nb + 1, dtype=np.int64) * nb
    if step > 0:
        return -((first - bounds) // step)  # the least t with first + step t >= bound
    return (first - bounds) // -step + 1  # the least t with first + step t < bound


def _index(starts: np.ndarray, lengths: np.ndarray, step: int) -> np.ndarray | slice:
    """Return the local indices of some segments: a slice where they are one progression, else an array."""
    if len(starts) > 1 and np.all(starts[1:] == starts[:-1] + step * lengths[:-1]):
        starts, lengths = starts[:1], np.array([lengths.sum()])
    if len(starts) == 1:
        a, n = int(starts[0]), int(lengths[0])
        stop = a + step * n
        return slice(a, stop if stop >= 0 else None, step)
    base = np.repeat(starts - step * (np.cumsum(lengths) - lengths), lengths)
    return base + step * np.arange(len(base), dtype=np.int64)


@lru_cache(maxsize=4096)
def plan(src: Layout, dst: Layout, rank: int, region: Region | None = None) -> Plan:
    """Plan the copy of `region` from layout `src` to layout `dst`, as `rank` sees it.

    Pure: every rank can compute every rank's plan, without communication. A destination rank takes a block that is
    replicated in the source from itself if it has it, else from one replica chosen by its own number, so that the load
    is spread. Where `src` holds partial sums, each summand is sent and the receiver adds them in a fixed order.
    """
    if region is None:
        region = whole(src.shape)
    axes = [_Axis(src, dst, a, region[a]) for a in range(len(region))]
    sends: list[Move] = []
    recvs: list[Move] = []
    local: list[Move] = []
    partial_ranks = _partial_blocks(src)
    for receiver in dst.grid.ranks:
        if rank != receiver and not src.holds(rank):
            continue
        cd = [dst.axis_coord(a, receiver) for a in range(len(axes))]
        for cs in product(*(ax.sources(c) for ax, c in zip(axes, cd, strict=True))):
            for sender in _senders(src, cs, receiver, partial_ranks):
                if rank not in (sender, receiver):
                    continue
                parts = [ax.table[s, d] for ax, s, d in zip(axes, cs, cd, strict=True)]
                peer = receiver if rank == sender else sender
                move = Move(peer, tuple(p[0] for p in parts), tuple(p[1] for p in parts), tuple(p[2] for p in parts))
                if move.size == 0:
                    continue
                (local if sender == receiver else sends if rank == sender else recvs).append(move)
    return Plan(tuple(sends), tuple(recvs), tuple(local), bool(src.partial), dst.order)


def _partial_blocks(src: Layout) -> list[tuple[int, ...]]:
    """Return every combination of coordinates along the grid axes over which `src` is a partial sum."""
    return list(product(*(range(src.grid.shape[a]) for a in src.partial)))


def _senders(src: Layout, cs: tuple[int, ...], receiver: int, summands: list[tuple[int, ...]]) -> list[int]:
    """Return the ranks that send block `cs` to `receiver`: one replica of each summand."""
    owners = src.owners(cs)
    if not src.partial:
        return [receiver if receiver in owners else owners[receiver % len(owners)]]
    chosen = []
    for want in summands:
        group = [r for r in owners if tuple(src.grid.coords(r)[a] for a in src.partial) == want]
        chosen.append(receiver if receiver in group else group[receiver % len(group)])
    return chosen


def _view(a: np.ndarray, index: tuple[np.ndarray | slice, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Apply the slices of `index` as a view and return it with what is left: index arrays for every axis."""
    view = a[tuple(i if isinstance(i, slice) else slice(None) for i in index)]
    return view, [_arange(view.shape[k]) if isinstance(i, slice) else i for k, i in enumerate(index)]


@lru_cache(maxsize=64)
def _arange(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int64)


def _copy(dst: np.ndarray, di: tuple, src: np.ndarray, si: tuple, kernel: Callable[..., None], add: bool) -> None:
    """dst[di] = src[si], or += for summands; slices stay slices, index arrays go through the copy kernel."""
    if not dst.ndim:
        dst[...] = dst + src if add else src
    elif all(isinstance(i, slice) for i in di) and all(isinstance(i, slice) for i in si) and dst.ndim == 1:
        if add:
            dst[di] += src[si]
        else:
            dst[di] = src[si]
    else:
        dv, dix = _view(dst, di)
        sv, six = _view(src, si)
        kernel(dv, dix, sv, six, add)


class Transfer:
    """Messages under way. `wait` receives and unpacks them."""

    __slots__ = ("_buffers", "_dst", "_kernel", "_plan", "_recvs", "_sends")

    def __init__(self, p: Plan, src: np.ndarray, dst: np.ndarray, comm: Comm, kernel: Callable[..., None], empty) -> None:
        self._plan, self._dst, self._kernel = p, dst, kernel
        self._recvs = []
        for m in p.recvs:
            buffer = empty(m.shape, dst.dtype, p.order)
            self._recvs.append((comm.irecv(buffer, m.peer), buffer, m))
        self._sends = []
        for m in p.sends:
            buffer = _in_place(src, m, p.order)
            if buffer is None:
                buffer = empty(m.shape, src.dtype, p.order)
                _copy(buffer, _all(m.shape), src, m.src, kernel, False)
            self._sends.append((comm.isend(buffer, m.peer), buffer))
        if p.add:
            dst[...] = 0
        for m in p.local:
            _copy(dst, m.dst, src, m.src, kernel, p.add)

    def test(self) -> bool:
        """Return whether every message has arrived and left, making progress on the way."""
        done = [r.test() for r, *_ in self._recvs] + [r.test() for r, _ in self._sends]
        return all(done)

    def wait(self, idle: Callable[[], bool] | None = None) -> None:
        """Receive and unpack what is outstanding; `idle` may do other work meanwhile."""
        for request, buffer, m in self._recvs:
            request.wait(idle)
            _copy(self._dst, m.dst, buffer, _all(m.shape), self._kernel, self._plan.add)
        for request, _ in self._sends:
            request.wait(idle)
        self._recvs, self._sends = [], []


def _in_place(src: np.ndarray, m: Move, order: tuple[int, ...]) -> np.ndarray | None:
    """Return the part of `src` that a message is, where it lies in memory just as it is to be packed."""
    if not all(isinstance(i, slice) for i in m.src):
        return None
    view = src[m.src]
    return view if view.transpose(order).flags.c_contiguous else None


def _all(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(0, n, 1) for n in shape)


def start(src: TiledArray, dst: TiledArray, region: Region | None = None) -> Transfer:
    """Begin copying `region` of `src` into `dst`; the transfer's `wait` completes it. Collective over both grids."""
    world = src.world
    p = plan(src.layout, dst.layout, world.rank, region)
    return Transfer(p, src.local, dst.local, world.comm, world.device.copy_indexed, world.device.empty)


def redistribute(a: TiledArray, layout: Layout) -> TiledArray:
    """Return `a` in another layout (`a` itself where nothing changes). Partial sums are added on the way.

    Cost: each element crosses the network at most once per replica of the destination, in at most one message per pair
    of ranks.
    """
    if a.layout == layout:
        return a
    out = TiledArray.empty(layout, a.dtype, a.world)
    if a.layout.partial and a.layout.replace(partial=()) == layout:
        out.local[...] = a.local
        if layout.holds(a.world.rank):
            a.world.grid_comm(a.layout.grid, a.layout.partial).allreduce(out.local)
        return out
    start(a, out).wait()
    return out
