"""Process grids: ranks at the points of an n-dimensional box."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import isqrt, prod
from typing import Any

__all__ = ["ProcessGrid", "factorings", "squarest"]


@dataclass(frozen=True, slots=True)
class ProcessGrid:
    """World ranks arranged, in C order, over a box of the given shape. Any subset of the ranks in any order."""

    shape: tuple[int, ...]
    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(n < 1 for n in self.shape):
            raise ValueError(f"grid shape {self.shape} must hold positive extents")
        if prod(self.shape) != len(self.ranks):
            raise ValueError(f"grid shape {self.shape} has {prod(self.shape)} places for {len(self.ranks)} ranks")
        if len(set(self.ranks)) != len(self.ranks) or any(r < 0 for r in self.ranks):
            raise ValueError(f"ranks {self.ranks} must be distinct and not negative")

    def __reduce__(self) -> tuple[Any, ...]:
        return _grid, (self.shape, self.ranks)

    @classmethod
    def of(cls, shape: tuple[int, ...], ranks: tuple[int, ...] | None = None) -> "ProcessGrid":
        """Return the grid of that shape over `ranks`, by default over ranks 0, 1, 2, ..."""
        return _grid(tuple(shape), tuple(range(prod(shape))) if ranks is None else tuple(ranks))

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
        return _coords(self).get(rank)

    def rank_at(self, coords: tuple[int, ...]) -> int:
        """Return the rank at some coordinates."""
        index = 0
        for c, n in zip(coords, self.shape, strict=True):
            index = index * n + c
        return self.ranks[index]

    def axis_ranks(self, rank: int, axes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ranks that share `rank`'s coordinates but for those along `axes`, in C order of these."""
        return _axis_ranks(self, rank, axes)


@lru_cache(maxsize=1024)
def _grid(shape: tuple[int, ...], ranks: tuple[int, ...]) -> ProcessGrid:
    return ProcessGrid(shape, ranks)


@lru_cache(maxsize=1024)
def _coords(grid: ProcessGrid) -> dict[int, tuple[int, ...]]:
    return dict(zip(grid.ranks, product(*map(range, grid.shape)), strict=True))


@lru_cache(maxsize=4096)
def _axis_ranks(grid: ProcessGrid, rank: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    here = grid.coords(rank)
    if here is None:
        raise ValueError(f"rank {rank} is not in the grid of ranks {grid.ranks}")
    choices = [range(n) if a in axes else (here[a],) for a, n in enumerate(grid.shape)]
    return tuple(grid.rank_at(c) for c in product(*choices))


def factorings(p: int) -> list[tuple[int, int]]:
    """Return every two-dimensional grid shape of `p` ranks."""
    return [(r, p // r) for r in range(1, p + 1) if p % r == 0]


def squarest(p: int) -> tuple[int, int]:
    """Return the grid shape (r, c) of `p` ranks with r <= c and r as large as possible."""
    r = next(r for r in range(isqrt(p), 0, -1) if p % r == 0)
    return r, p // r
