"""Distributions: what a user writes to say how an array is spread, and the layout that it means for a shape."""

from dataclasses import dataclass
from math import prod

from pypto.grid import ProcessGrid, squarest
from pypto.layout import Cyclic, Layout

__all__ = [
    "Block",
    "BlockCyclic",
    "Column",
    "Distribution",
    "OnDevice",
    "Replicated",
    "Row",
    "default_nb",
    "describe",
    "resolve",
]


class Distribution:
    """Base of the values that say how an array is spread over the devices."""


@dataclass(frozen=True, slots=True)
class Row(Distribution):
    """Blocks of the first axis over all devices."""


@dataclass(frozen=True, slots=True)
class Column(Distribution):
    """Blocks of the last axis over all devices."""


@dataclass(frozen=True, slots=True)
class Block(Distribution):
    """One block per device: over a grid with one extent per array axis, by default near-square over the longest two."""

    grid: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class BlockCyclic(Distribution):
    """Tiles of `nb` indices (an int, or one per axis) dealt in turn over a grid of devices.

    A two-dimensional grid deals the last two axes, a one-dimensional one the first; the other axes are whole.
    """

    nb: int | tuple[int, ...] | None = None
    grid: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Replicated(Distribution):
    """All of the array on every device."""


@dataclass(frozen=True, slots=True)
class OnDevice(Distribution):
    """All of the array on one device."""

    device: int


_WORDS: dict[str, Distribution] = {
    "row": Row(),
    "col": Column(),
    "block": Block(),
    "block_cyclic": BlockCyclic(),
    "replicated": Replicated(),
}


def default_nb(shape: tuple[int, ...], grid: tuple[int, ...]) -> int:
    """Return the tile size for a matrix: wide enough for GEMM, narrow enough that panels stay off the critical path.

    Small matrices get at least two tiles per grid coordinate, so that every rank has work; the steps are those at which
    an LU factorisation measured fastest.
    """
    n = min(shape) if shape else 1
    if n <= 256:
        return max(16, -(-n // (2 * max(grid))))
    return 64 if n < 1500 else 192


def resolve(
    dist: str | Distribution,
    shape: tuple[int, ...],
    *,
    size: int,
    grid: tuple[int, ...] | None = None,
    nb: int | None = None,
) -> Layout:
    """Return the layout that `dist` means for an array of `shape` on `size` devices.

    Parameters
    ----------
    dist : str or Distribution
    shape : tuple of int
    size : int
        Number of devices, P.
    grid : tuple of int, optional
        The context's default grid for matrices; the squarest where it is None.
    nb : int, optional
        The context's tile size; chosen from the shape where it is None.

    Raises
    ------
    ValueError
        An unknown word, a grid that does not match the devices or the axes, a tile size or device out of range.
    """
    if isinstance(dist, str):
        if dist == "auto":
            return _auto(shape, size, grid, nb)
        if dist not in _WORDS:
            raise ValueError(
                f"distribution={dist!r} is not allowed; choose from 'auto', {', '.join(map(repr, _WORDS))}, or a value "
                "such as BlockCyclic(64)"
            )
        dist = _WORDS[dist]
    everyone = ProcessGrid.of((size,))
    if isinstance(dist, Replicated):
        return Layout.replicated(shape, everyone)
    if isinstance(dist, OnDevice):
        if not 0 <= dist.device < size:
            raise ValueError(f"OnDevice({dist.device}): there are {size} device(s), numbered from 0")
        return Layout.replicated(shape, ProcessGrid.of((1,), (dist.device,)))
    if not shape:
        return Layout.replicated(shape, everyone)
    if isinstance(dist, (Row, Column)):
        return _one_axis(shape, 0 if isinstance(dist, Row) else len(shape) - 1, everyone)
    if isinstance(dist, Block):
        return _block(shape, size, dist.grid)
    if isinstance(dist, BlockCyclic):
        return _block_cyclic(shape, size, dist.grid or grid, dist.nb or nb)
    raise ValueError(f"distribution={dist!r} is not a distribution; give a word or a value such as Row()")


def _auto(shape: tuple[int, ...], size: int, grid: tuple[int, ...] | None, nb: int | None) -> Layout:
    """Matrices block-cyclic; other arrays in blocks of the longest axis."""
    everyone = ProcessGrid.of((size,))
    if not shape:
        return Layout.replicated(shape, everyone)
    if len(shape) == 2:
        return _block_cyclic(shape, size, grid if grid is None or len(grid) == 2 else None, nb)
    return _one_axis(shape, max(range(len(shape)), key=lambda a: shape[a]), everyone)


def _one_axis(shape: tuple[int, ...], axis: int, grid: ProcessGrid) -> Layout:
    nb = max(1, -(-shape[axis] // grid.size))
    return Layout(shape, grid, tuple(Cyclic(0, nb) if a == axis else None for a in range(len(shape))))


def _checked_grid(shape: tuple[int, ...], size: int) -> ProcessGrid:
    if not all(isinstance(n, int) and n > 0 for n in shape) or prod(shape) > size:
        raise ValueError(f"grid={shape} needs {prod(shape)} device(s); there are {size}")
    return ProcessGrid.of(shape)


def _block(shape: tuple[int, ...], size: int, given: tuple[int, ...] | None) -> Layout:
    if given is None:
        longest = sorted(sorted(range(len(shape)), key=lambda a: -shape[a])[:2])
        extents = dict(zip(longest, squarest(size) if len(longest) == 2 else (size,), strict=True))
        given = tuple(extents.get(a, 1) for a in range(len(shape)))
    if len(given) != len(shape):
        raise ValueError(f"Block(grid={given}) has {len(given)} extents for an array of {len(shape)} axes")
    grid = _checked_grid(given, size)
    return Layout(shape, grid, tuple(Cyclic(a, max(1, -(-n // p))) for a, (n, p) in enumerate(zip(shape, given, strict=True))))


def _block_cyclic(shape: tuple[int, ...], size: int, given: tuple[int, ...] | None, nb: int | tuple[int, ...] | None) -> Layout:
    n = len(shape)
    if given is None:
        given = squarest(size) if n > 1 else (size,)
    if n == 1 and len(given) == 2:
        given = (prod(given),)
    if len(given) > n or len(given) > 2:
        raise ValueError(f"grid={given} has {len(given)} extents; an array of {n} axes takes {'1' if n == 1 else '1 or 2'}")
    axes = (0,) if len(given) == 1 else (n - 2, n - 1)
    if nb is None:
        nb = default_nb(tuple(shape[a] for a in axes), given)
    sizes = (nb,) * len(axes) if isinstance(nb, int) else tuple(nb)
    if len(sizes) == n > len(axes):
        sizes = tuple(sizes[a] for a in axes)
    if len(sizes) != len(axes) or any(not isinstance(k, int) or not 1 <= k <= 10_000 for k in sizes):
        raise ValueError(f"nb={nb!r} is not allowed; give an integer from 1 to 10000, or {len(axes)} of them")
    dims: list[Cyclic | None] = [None] * n
    for g, (a, k) in enumerate(zip(axes, sizes, strict=True)):
        dims[a] = Cyclic(g, k)
    return Layout(shape, _checked_grid(given, size), tuple(dims))


def describe(layout: Layout) -> Distribution | str:
    """Return the distribution that a layout is, or a text that says how each axis is dealt."""
    size = layout.grid.size
    plain = layout.grid.ranks == tuple(range(size)) and not layout.partial
    if size == 1 and layout.grid.ranks != (0,):
        return OnDevice(layout.grid.ranks[0])
    if plain and layout.shape:
        if size == 1 or all(d is None for d in layout.dims):
            return Replicated()
        candidates: list[Distribution] = [Row(), Column()]
        if layout.grid.ndim == len(layout.shape):
            candidates.append(Block(layout.grid.shape))
        dealt = [d for d in layout.dims if d is not None]
        nbs = tuple(d.nb for d in dealt)
        candidates.append(BlockCyclic(nbs[0] if len(set(nbs)) == 1 else nbs, layout.grid.shape))
        for candidate in candidates:
            try:
                if resolve(candidate, layout.shape, size=size).same_ownership(layout):
                    return candidate
            except ValueError:
                continue
    elif plain:
        return Replicated()
    axes = ", ".join("whole" if d is None else f"nb={d.nb} over grid axis {d.axis} from {d.src}" for d in layout.dims)
    extra = f", partial sums over {layout.partial}" if layout.partial else ""
    return f"grid {layout.grid.shape} of ranks {layout.grid.ranks}: ({axes}){extra}"
