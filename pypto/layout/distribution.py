"""Distributions: what a user writes to say how an array is spread, and the layout that it means for a shape."""

from dataclasses import dataclass
from math import prod
from operator import index

from pypto.layout.grid import ProcessGrid, squarest
from pypto.layout.layout import Cyclic, Layout, numroc

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
    """One block per device: over a grid for the first axes, by default a near-square one for the longest two.

    Axes beyond the grid's are whole.
    """

    grid: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", _grid(self.grid))


@dataclass(frozen=True, slots=True)
class BlockCyclic(Distribution):
    """Tiles of `nb` indices (an int, or one per axis) dealt in turn over a grid of devices.

    A two-dimensional grid deals the last two axes, a one-dimensional one the first; the other axes are whole.
    """

    nb: int | tuple[int, ...] | None = None
    grid: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "nb", _tile(self.nb))
        object.__setattr__(self, "grid", _grid(self.grid))


@dataclass(frozen=True, slots=True)
class Replicated(Distribution):
    """All of the array on every device."""


@dataclass(frozen=True, slots=True)
class OnDevice(Distribution):
    """All of the array on one device."""

    device: int

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "device", index(self.device))
        except TypeError:
            raise ValueError(f"OnDevice({self.device!r}) is not allowed; give the number of a device") from None


_MAX_NB = 10_000


def _grid(grid: object) -> tuple[int, ...] | None:
    """Return a grid as a tuple of integers; what fits the devices and the array is known only later."""
    if grid is None:
        return None
    try:
        extents = tuple(map(index, grid))  # type: ignore[call-overload]
    except TypeError:
        extents = ()
    if not extents or min(extents) < 1:
        raise ValueError(f"grid={grid!r} is not allowed; give a tuple of positive integers such as (2, 2)")
    return extents


def _tile(nb: object) -> int | tuple[int, ...] | None:
    """Return a tile size as an integer, or a tuple of one per axis."""
    if nb is None:
        return None
    try:
        sizes = tuple(map(index, nb)) if isinstance(nb, (tuple, list)) else (index(nb),)  # type: ignore[arg-type]
    except TypeError:
        sizes = ()
    if not sizes or min(sizes) < 1 or max(sizes) > _MAX_NB:
        raise ValueError(f"nb={nb!r} is not allowed; give an integer from 1 to {_MAX_NB}, or a tuple of one per axis")
    return sizes if isinstance(nb, (tuple, list)) else sizes[0]


_WORDS: dict[str, Distribution] = {
    "row": Row(),
    "col": Column(),
    "block": Block(),
    "block_cyclic": BlockCyclic(),
    "replicated": Replicated(),
}


def default_nb(shape: tuple[int, ...], grid: tuple[int, ...]) -> int:
    """Return the tile size for a matrix: wide enough for GEMM, narrow enough that panels stay off the critical path.

    Small matrices get at least two tiles per grid coordinate, so that every rank has work. Larger ones get the size at which an
    LU factorisation measured fastest, or one near it by which no rank owns over a hundredth more than its share: with 192 the
    first of two ranks owns 2112 of 4096 columns, with 128 half of them.
    """
    n = min(shape) if shape else 1
    if n <= 256:
        return max(16, -(-n // (2 * max(grid))))
    sizes = (64, 80, 48, 96) if n < 1500 else (192, 160, 224, 128, 256)
    excess = {nb: max(numroc(m, nb, 0, 0, p) * p / m - 1 for m, p in zip(shape, grid, strict=False)) for nb in sizes}
    return next((nb for nb in sizes if excess[nb] <= 0.01), min(sizes, key=excess.__getitem__))


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
        if dist.grid is not None:
            grid = dist.grid
        elif grid is not None and len(grid) > 2:
            grid = None
        return _block_cyclic(shape, size, grid, nb if dist.nb is None else dist.nb)
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
    if prod(shape) > size:
        raise ValueError(f"grid={shape} needs {prod(shape)} device(s); there are {size}")
    return ProcessGrid.of(shape)


def _block(shape: tuple[int, ...], size: int, given: tuple[int, ...] | None) -> Layout:
    n = len(shape)
    if given is None:
        longest = sorted(sorted(range(n), key=lambda a: -shape[a])[:2])
        extents = dict(zip(longest, squarest(size) if len(longest) == 2 else (size,), strict=True))
        given = tuple(extents.get(a, 1) for a in range(n))
    if len(given) > n:
        raise ValueError(f"Block(grid={given}) has {len(given)} extents; an array of {n} axes takes 1 to {n}")
    dealt = [Cyclic(a, max(1, -(-shape[a] // p))) for a, p in enumerate(given)]
    return Layout(shape, _checked_grid(given, size), (*dealt, *[None] * (n - len(given))))


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
    if len(sizes) != len(axes):
        allowed = f"{len(axes)}" if len(axes) == n else f"{len(axes)} or {n}"
        raise ValueError(
            f"nb={nb!r} is not allowed for an array of {n} axes over a grid {given}; give an integer, or {allowed}"
        )
    dims: list[Cyclic | None] = [None] * n
    for g, (a, k) in enumerate(zip(axes, sizes, strict=True)):
        dims[a] = Cyclic(g, k)
    return Layout(shape, _checked_grid(given, size), tuple(dims))


def describe(layout: Layout, size: int | None = None) -> Distribution | str:
    """Return the distribution that a layout is, or a text that says how each axis is dealt.

    Parameters
    ----------
    layout : Layout
    size : int, optional
        Number of devices. By default those of the layout's grid, except that what one rank has is said to be on that
        device: this is right however many there are.

    Returns
    -------
    Distribution or str
        A value for which `resolve` returns a layout with the same ownership.
    """
    grid, shape = layout.grid, layout.shape
    everyone = grid.size if size is None else size
    if not layout.partial:
        if grid.size == 1:
            return Replicated() if size == 1 else OnDevice(grid.ranks[0])
        whole = all(d is None for d in layout.dims)
        for candidate in [Replicated()] if whole else _candidates(layout):
            try:
                if resolve(candidate, shape, size=everyone).same_ownership(layout):
                    return candidate
            except ValueError:  # a grid of more devices than there are
                continue
    axes = ", ".join("whole" if d is None else f"nb={d.nb} over grid axis {d.axis} from {d.src}" for d in layout.dims)
    extra = f", partial sums over {layout.partial}" if layout.partial else ""
    return f"grid {grid.shape} of ranks {_short(grid.ranks)}: ({axes}){extra}"


def _candidates(layout: Layout) -> list[Distribution]:
    """Return the values that the layout may be, those nearest to how it is written first.

    Values that name their grid mean the same however many devices there are; rows and columns do not.
    """
    n = len(layout.shape)
    extents = tuple(layout.extent(a) for a in range(n))
    named: list[Distribution] = [Row(), Column()] if layout.dims[0] is not None else [Column(), Row()]
    gridded: list[Distribution] = [Block(extents)]
    for axes in [range(n - 2, n), range(1)] if n > 1 else [range(1)]:
        nbs = {d.nb for d in layout.dims if d is not None}
        # On an axis that is not dealt any tile size does.
        sizes = tuple(min(nbs) if (d := layout.dims[a]) is None else d.nb for a in axes)
        if max(sizes) <= _MAX_NB:
            gridded.append(BlockCyclic(sizes[0] if len(set(sizes)) == 1 else sizes, tuple(extents[a] for a in axes)))
    return named + gridded if layout.grid.ndim == 1 else gridded + named


def _short(ranks: tuple[int, ...]) -> str:
    if len(ranks) <= 8:
        return str(ranks)
    if ranks == tuple(range(ranks[0], ranks[0] + len(ranks))):
        return f"{ranks[0]} to {ranks[-1]}"
    return f"({', '.join(map(str, ranks[:4]))}, ..., {ranks[-1]})"
