"""Layouts: which rank holds which elements of an array, and where. Pure values; the rank is an argument.

Each array axis is dealt in tiles of nb consecutive indices to the ranks along one grid axis, in turn, starting at the one
with coordinate src (block-cyclic); or it is whole on every rank. Blocks are nb = ceil(n/p). Along grid axes that no array
axis uses the array is replicated, or, where they are listed in `partial`, the ranks hold summands.

A rank's part is one dense array, its tiles one behind the other along each axis, stored with one leading dimension in
`order`. All index arithmetic is in 64 bits.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pypto.layout.grid import ProcessGrid

__all__ = ["Cyclic", "Layout", "numroc"]

Int64 = npt.NDArray[np.int64]
_INTEGERS = (int, np.integer)


def numroc(n: int, nb: int, coord: int, src: int, p: int) -> int:
    """Return how many of n indices, dealt in tiles of nb to p coordinates starting at src, coordinate `coord` owns.

    Source: ScaLAPACK TOOLS/numroc.
    """
    distance = (coord - src) % p
    tiles, rest = divmod(n, nb)
    whole_rounds, extra = divmod(tiles, p)
    return whole_rounds * nb + (nb if distance < extra else rest if distance == extra else 0)


@dataclass(frozen=True, slots=True)
class Cyclic:
    """One array axis dealt in tiles of `nb` indices over grid axis `axis`; the first tile is at coordinate `src`."""

    axis: int
    nb: int
    src: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Cyclic, (self.axis, self.nb, self.src)


@dataclass(frozen=True, eq=False)
class Layout:
    """How an array of `shape` lies on the ranks of `grid`.

    Parameters
    ----------
    shape : tuple of int
    grid : ProcessGrid
    dims : tuple of Cyclic or None
        Per array axis; None: whole on every rank. A grid axis serves one array axis at most.
    partial : tuple of int
        Grid axes along which the ranks hold summands. Kept ascending, without axes of extent 1, where there is one summand.
    order : tuple of int
        Array axes from the slowest to the fastest varying in memory. Default: Fortran order for matrices, C for others.

    Notes
    -----
    Two layouts are equal when every rank holds the same elements in the same memory order, however they are written:
    the same indices along every axis and, of partial sums, the summand of the same number. A rank that is outside the
    grid differs from one that is inside and owns nothing, as the shapes of their parts do.
    """

    shape: tuple[int, ...]
    grid: ProcessGrid
    dims: tuple[Cyclic | None, ...]
    partial: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    _key: tuple[Any, ...] = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n = len(self.shape)
        if not self.order:
            object.__setattr__(self, "order", (1, 0) if n == 2 else tuple(range(n)))
        _check(self)
        if self.partial:
            object.__setattr__(self, "partial", tuple(a for a in sorted(self.partial) if self.grid.shape[a] > 1))
        # The storage order of axes no longer than one does not show.
        key = (_ownership(self), tuple([a for a in self.order if self.shape[a] > 1]))
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_hash", hash(key))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Layout):
            return NotImplemented
        return self._hash == other._hash and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.shape, self.grid, self.dims, self.partial, self.order)

    def same_ownership(self, other: "Layout") -> bool:
        """Return whether every rank holds the same elements, in whatever memory order."""
        return self is other or bool(self._key[0] == other._key[0])

    def replace(self, **changes: Any) -> "Layout":
        """Return a layout that differs in some fields."""
        if "shape" in changes and len(changes["shape"]) != len(self.shape):
            changes.setdefault("order", ())
        return replace(self, **changes)

    def transpose(self, axes: tuple[int, ...]) -> "Layout":
        """Return the layout of the array with its axes permuted; local parts become transposed views."""
        return _transposed(self.shape, self.grid, self.dims, self.partial, self.order, tuple(axes))

    # who holds what

    def holds(self, rank: int) -> bool:
        """Return whether `rank` is in the grid."""
        return self.grid.coords(rank) is not None

    def extent(self, axis: int) -> int:
        """Return over how many coordinates an array axis is dealt; 1 where it is whole."""
        dim = self.dims[axis]
        return 1 if dim is None else self.grid.shape[dim.axis]

    def axis_coord(self, axis: int, rank: int) -> int:
        """Return the coordinate of `rank` along the grid axis that deals `axis`; 0 where it is whole."""
        dim, coords = self.dims[axis], self.grid.coords(rank)
        return 0 if dim is None or coords is None else coords[dim.axis]

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """Return the shape of a rank's part; all zeros for a rank outside the grid."""
        return _local_shape(self, rank)

    def max_local_size(self) -> int:
        """Return the number of elements on the rank that holds most."""
        return prod(
            n if d is None else numroc(n, d.nb, d.src, d.src, self.extent(a))
            for a, (n, d) in enumerate(zip(self.shape, self.dims, strict=True))
        )

    def axis_part(self, axis: int, coord: int) -> Int64:
        """Return the ascending global indices that coordinate `coord` owns along `axis`. Read-only."""
        return _axis_part(self.shape[axis], self.dims[axis], self.extent(axis), coord)

    def indices(self, axis: int, rank: int) -> Int64:
        """Return the ascending global indices that `rank` owns along `axis`. Read-only."""
        if not self.holds(rank):
            return _axis_part(0, None, 1, 0)
        return self.axis_part(axis, self.axis_coord(axis, rank))

    @overload
    def to_local(self, axis: int, i: int) -> tuple[int, int]: ...
    @overload
    def to_local(self, axis: int, i: Int64) -> tuple[Int64, Int64]: ...
    def to_local(self, axis: int, i: Any) -> tuple[Any, Any]:
        """Return the coordinate that owns global index (or indices) `i` along `axis`, and its local index there."""
        dim = self.dims[axis]
        if dim is None:
            return (0 if isinstance(i, (int, np.integer)) else np.zeros_like(i)), i
        p = self.extent(axis)
        tile = i // dim.nb
        return (tile + dim.src) % p, tile // p * dim.nb + i % dim.nb

    @overload
    def to_global(self, axis: int, coord: int, il: int) -> int: ...
    @overload
    def to_global(self, axis: int, coord: int, il: Int64) -> Int64: ...
    def to_global(self, axis: int, coord: int, il: Any) -> Any:
        """Return the global index (or indices) of local index `il` on coordinate `coord` along `axis`."""
        dim = self.dims[axis]
        if dim is None:
            return il
        p = self.extent(axis)
        return (il // dim.nb * p + (coord - dim.src) % p) * dim.nb + il % dim.nb

    def owners(self, coords: tuple[int, ...]) -> tuple[int, ...]:
        """Return every rank that holds the block with these coordinates, one per array axis: all replicas, ascending.

        Of partial sums, every rank with a summand of the block.
        """
        return _owners(self.grid, self.dims, tuple(coords))

    def replica(self, rank: int) -> tuple[int, int]:
        """Return which of how many replicas of its block `rank` holds; ValueError for a rank outside the grid."""
        if not self.holds(rank):
            raise ValueError(f"rank {rank} is not in the grid of ranks {self.grid.ranks}")
        mine = self.owners(tuple(self.axis_coord(a, rank) for a in range(len(self.shape))))
        return mine.index(rank), len(mine)

    @staticmethod
    def replicated(shape: tuple[int, ...], grid: ProcessGrid, order: tuple[int, ...] | None = None) -> "Layout":
        """Return the layout in which every rank of the grid holds all of the array."""
        return _replicated(tuple(shape), grid, tuple(order or ()))


@lru_cache(maxsize=4096)
def _again(
    shape: tuple[int, ...],
    grid: ProcessGrid,
    dims: tuple[Cyclic | None, ...],
    partial: tuple[int, ...],
    order: tuple[int, ...],
) -> Layout:
    """Return a layout from its pickle; arrays that travel often bring the same one."""
    return Layout(shape, grid, dims, partial, order)


def _check(layout: Layout) -> None:
    n, extents = len(layout.shape), layout.grid.shape
    if len(layout.dims) != n:
        raise ValueError(f"dims has {len(layout.dims)} entries for an array of {n} axes")
    if n and min(layout.shape) < 0:
        raise ValueError(f"shape {layout.shape} has a negative extent")
    if sorted(layout.order) != list(range(n)):
        raise ValueError(f"order {layout.order} is not a permutation of the {n} axes")
    used = [*[d.axis for d in layout.dims if d is not None], *layout.partial]
    if not used:
        return
    if min(used) < 0 or max(used) >= len(extents):
        raise ValueError(f"grid axes {used} are used; the grid of shape {extents} has axes 0 to {len(extents) - 1}")
    if len(set(used)) != len(used):
        raise ValueError(f"grid axes {used} are used: each may serve one array axis, or be partial")
    for d in layout.dims:
        if d is None:
            continue
        if not (isinstance(d.nb, _INTEGERS) and isinstance(d.src, _INTEGERS)):
            raise ValueError(f"{d}: nb and src must be integers")
        if d.nb < 1 or not 0 <= d.src < extents[d.axis]:
            raise ValueError(f"{d}: nb must be positive and src below the grid's extent {extents[d.axis]}")


def _ownership(layout: Layout) -> tuple[Any, ...]:
    """Return a key that is equal for layouts in which every rank holds the same elements, and only for those.

    A tile longer than the axis is as long as the axis; an axis that has no elements, or one coordinate, is a whole one.
    With two tiles the first boundary shows nb; with one tile nb = n and some coordinates own nothing. So nb and the number
    of coordinates that own something (`hands`) follow from the parts, and given these a rank's part and the place of its
    coordinate in the deal determine each other.
    """
    extents = layout.grid.shape
    tiles: list[tuple[int, int] | None] = []
    dealt: list[tuple[int, int, int] | None] = []
    for n, d in zip(layout.shape, layout.dims, strict=True):
        if d is None or n == 0 or extents[d.axis] == 1:
            tiles.append(None)
            dealt.append(None)
        else:
            nb = d.nb if d.nb < n else n
            hands = min(-(-n // nb), extents[d.axis])
            tiles.append((nb, hands))
            dealt.append((d.axis, d.src, hands))
    return layout.shape, tuple(tiles), _places(layout.grid, tuple(dealt), layout.partial)


@lru_cache(maxsize=1024)
def _places(grid: ProcessGrid, dealt: tuple[tuple[int, int, int] | None, ...], partial: tuple[int, ...]) -> bytes:
    """Return a row per rank, ascending: the rank, the number of its summand, and its place in the deal of each axis.

    The place is -1 where the axis is whole, and -2 where the rank owns none of it. As bytes, these are compact,
    compared at once and hashed once.
    """
    table = []
    for rank in sorted(grid.ranks):
        at = grid.coords(rank) or ()
        summand = 0
        for a in partial:
            summand = summand * grid.shape[a] + at[a]
        row = [rank, summand]
        for deal in dealt:
            if deal is None:
                row.append(-1)
            else:
                axis, src, hands = deal
                place = (at[axis] - src) % grid.shape[axis]
                row.append(place if place < hands else -2)
        table.append(row)
    return np.array(table, dtype=np.int64).tobytes()


@lru_cache(maxsize=8192)
def _local_shape(layout: Layout, rank: int) -> tuple[int, ...]:
    coords = layout.grid.coords(rank)
    if coords is None:
        return (0,) * len(layout.shape)
    return tuple(
        n if d is None else numroc(n, d.nb, coords[d.axis], d.src, layout.grid.shape[d.axis])
        for n, d in zip(layout.shape, layout.dims, strict=True)
    )


@lru_cache(maxsize=256)
def _axis_part(n: int, dim: Cyclic | None, p: int, coord: int) -> Int64:
    if dim is None:
        part = np.arange(n, dtype=np.int64)
    else:
        il = np.arange(numroc(n, dim.nb, coord, dim.src, p), dtype=np.int64)
        part = (il // dim.nb * p + (coord - dim.src) % p) * dim.nb + il % dim.nb
    part.flags.writeable = False
    return part


# Keyed by how the layout is written, not by the layout: equal layouts may number the grid differently.


@lru_cache(maxsize=8192)
def _owners(grid: ProcessGrid, dims: tuple[Cyclic | None, ...], coords: tuple[int, ...]) -> tuple[int, ...]:
    fixed = {d.axis: c for d, c in zip(dims, coords, strict=True) if d is not None}
    choices = [(fixed[a],) if a in fixed else range(n) for a, n in enumerate(grid.shape)]
    # Ascending, so that equal layouts, which may number the grid differently, name the same replica first.
    return tuple(sorted(grid.rank_at(c) for c in product(*choices)))


@lru_cache(maxsize=4096)
def _transposed(
    shape: tuple[int, ...],
    grid: ProcessGrid,
    dims: tuple[Cyclic | None, ...],
    partial: tuple[int, ...],
    order: tuple[int, ...],
    axes: tuple[int, ...],
) -> Layout:
    if sorted(axes) != list(range(len(shape))):
        raise ValueError(f"axes {axes} is not a permutation of the {len(shape)} axes")
    where = {a: k for k, a in enumerate(axes)}
    return Layout(
        tuple(shape[a] for a in axes),
        grid,
        tuple(dims[a] for a in axes),
        partial,
        tuple(where[a] for a in order),
    )


@lru_cache(maxsize=4096)
def _replicated(shape: tuple[int, ...], grid: ProcessGrid, order: tuple[int, ...]) -> Layout:
    return Layout(shape, grid, (None,) * len(shape), (), order)
