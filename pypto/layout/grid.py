"""Process grids: ranks at the points of an n-dimensional box."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import isqrt, prod
from operator import index
from typing import Any

__all__ = ["ProcessGrid", "factorings", "squarest"]


@dataclass(frozen=True, slots=True)
class ProcessGrid:
    """World ranks arranged, in C order, over a box of the given shape. Any subset of the ranks in any order."""

    shape: tuple[int, ...]
    ranks: tuple[int, ...]
    # Both follow from the two fields above; they are asked for thousands of times.
    _places: dict[int, tuple[int, ...]] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if any(n < 1 for n in self.shape):
            raise ValueError(f"grid shape {self.shape} must hold positive extents")
        if prod(self.shape) != len(self.ranks):
            raise ValueError(f"grid shape {self.shape} has {prod(self.shape)} places for {len(self.ranks)} ranks")
        if len(set(self.ranks)) != len(self.ranks) or any(r < 0 for r in self.ranks):
            raise ValueError(f"ranks {self.ranks} must be distinct and not negative")
        places = dict(zip(self.ranks, product(*map(range, self.shape)), strict=True))
        object.__setattr__(self, "_places", places)
        object.__setattr__(self, "_hash", hash((self.shape, self.ranks)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return _grid, (self.shape, self.ranks)

    @classmethod
    def of(cls, shape: Iterable[int], ranks: Iterable[int] | None = None) -> "ProcessGrid":
        """Return the grid of that shape over `ranks`, by default over ranks 0, 1, 2, ..."""
        extents = _whole_numbers("grid shape", shape)
        return _first(extents) if ranks is None else _grid(extents, _whole_numbers("ranks", ranks))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def ndim(self) -> int:
        """Number of grid axes."""
        return len(self.shape)

    def coords(self, rank: int) -> tuple[int, ...] | None:
        """Return a rank's coordinates, None for a rank that is not in the grid."""
        return self._places.get(rank)

    def rank_at(self, coords: tuple[int, ...]) -> int:
        """Return the rank at some coordinates."""
        if len(coords) != len(self.shape) or any(not 0 <= c < n for c, n in zip(coords, self.shape, strict=True)):
            raise ValueError(f"coordinates {coords} are not in the grid of shape {self.shape}; each counts from 0")
        place = 0
        for c, n in zip(coords, self.shape, strict=True):
            place = place * n + c
        return self.ranks[place]

    def axis_ranks(self, rank: int, axes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ranks that share `rank`'s coordinates but for those along `axes`, in C order of the grid."""
        return _axis_ranks(self, rank, tuple(axes))


def _whole_numbers(name: str, values: Iterable[int]) -> tuple[int, ...]:
    try:
        return tuple(map(index, values))
    except TypeError:
        raise ValueError(f"{name} {values!r} is not allowed; give a tuple of integers") from None


@lru_cache(maxsize=1024)
def _grid(shape: tuple[int, ...], ranks: tuple[int, ...]) -> ProcessGrid:
    return ProcessGrid(shape, ranks)


@lru_cache(maxsize=1024)
def _first(shape: tuple[int, ...]) -> ProcessGrid:
    """Return the grid of the first ranks in their natural order."""
    return _grid(shape, tuple(range(prod(shape))))


@lru_cache(maxsize=4096)
def _axis_ranks(grid: ProcessGrid, rank: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    here = grid.coords(rank)
    if here is None:
        raise ValueError(f"rank {rank} is not in the grid of ranks {grid.ranks}")
    if any(not 0 <= a < grid.ndim for a in axes):
        raise ValueError(f"axes {axes} must be among those of the grid of shape {grid.shape}, counted from 0")
    choices = [range(n) if a in axes else (here[a],) for a, n in enumerate(grid.shape)]
    return tuple(grid.rank_at(c) for c in product(*choices))


def _check_count(p: int) -> None:
    if p < 1:
        raise ValueError(f"{p} ranks cannot form a grid; give a positive number")


def factorings(p: int) -> list[tuple[int, int]]:
    """Return every two-dimensional grid shape of `p` ranks."""
    _check_count(p)
    return [(r, p // r) for r in range(1, p + 1) if p % r == 0]


def squarest(p: int) -> tuple[int, int]:
    """Return the grid shape (r, c) of `p` ranks with r <= c and r as large as possible."""
    _check_count(p)
    r = next(r for r in range(isqrt(p), 0, -1) if p % r == 0)
    return r, p // r
