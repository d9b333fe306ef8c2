"""What the rows of the table for matrices share: layouts, checks, and the wrapping of local results."""

from functools import lru_cache

import numpy as np

from pypto.layout.layout import Cyclic, Layout
from pypto.linalg import _triangular
from pypto.ops.opdef import Env
from pypto.tiles.status import agree, agreed
from pypto.tiles.tiled import TiledArray, World

__all__ = [
    "cast",
    "common",
    "finite",
    "one_device",
    "own_copy",
    "place_batch",
    "rhs_layout",
    "rows_match",
    "square",
    "square_tiles",
    "stored",
    "wrapped",
]


# layouts


@lru_cache(maxsize=1024)
def square_tiles(env: Env, layout: Layout) -> Layout:
    """Return the layout in which a matrix is factored: its own if that has square tiles on a 2-D grid, else the default."""
    rows, cols = layout.dims
    fits = (
        layout.grid.ndim == 2
        and not layout.partial
        and layout.order == (1, 0)
        and isinstance(rows, Cyclic)
        and isinstance(cols, Cyclic)
        and (rows.axis, cols.axis) == (0, 1)
        and rows.nb == cols.nb
    )
    return layout if fits or env.size == 1 else env.layout(layout.shape)


@lru_cache(maxsize=1024)
def place_batch(env: Env, shape: tuple[int, ...], batch: int) -> Layout:
    """Return the layout of an array of matrices: the longest of the first `batch` axes in blocks, each matrix whole."""
    axis = max(range(batch), key=lambda a: shape[a])
    nb = max(1, -(-shape[axis] // env.size))
    dims = tuple(Cyclic(0, nb) if a == axis else None for a in range(len(shape)))
    return Layout(shape, env.everyone(), dims, (), tuple(range(len(shape))))


# checks


def finite(world: World, *operands: TiledArray) -> None:
    """Raise ValueError on every rank if any rank's part holds Inf or NaN. Collective."""
    bad = any(a.dtype.kind in "fc" and not np.isfinite(a.local).all() for a in operands)
    agree(world, ValueError("array must not contain infs or NaNs") if bad else None)


def square(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"{name} needs a square matrix; got shape {shape}")


def rows_match(a: tuple[int, ...], b: tuple[int, ...], name: str) -> None:
    square(a, name)
    if len(b) != 2 or b[0] != a[0]:
        raise ValueError(f"{name}: a matrix of shape {a} and a right-hand side of shape {b} do not match")


def common(dtypes) -> np.dtype:
    return np.result_type(*dtypes)


def cast(a: TiledArray, dtype: np.dtype) -> TiledArray:
    return a if a.dtype == dtype else TiledArray(a.layout, a.local.astype(dtype, order="K"), a.world)


def stored(value: np.ndarray, layout: Layout, dtype: np.dtype, world: World) -> TiledArray:
    out = TiledArray.empty(layout, dtype, world)
    out.local[...] = value
    return out


def wrapped(value: np.ndarray, layout: Layout, world: World) -> TiledArray:
    """Wrap a local result where its memory order is the layout's, else copy it into one."""
    fits = value.flags.f_contiguous if layout.order == (1, 0) and value.ndim == 2 else value.flags.c_contiguous
    return TiledArray(layout, value, world) if fits else stored(value, layout, value.dtype, world)


def one_device(call, name: str):
    """Run a SciPy routine; what it raises is the same on every rank, since there is one."""
    try:
        return call()
    except (np.linalg.LinAlgError, ValueError) as error:
        raise agreed(error) from None


def rhs_layout(env: Env, tiles: Layout, shape: tuple[int, ...], trans: str) -> Layout:
    if env.size == 1:
        return env.layout(shape)
    return _triangular.trsm_layout(tiles, shape[1], trans)


def own_copy(layouts, dtype, attrs) -> int:
    """Bytes of the copy of the matrix in which a solve factors it."""
    return layouts[0].max_local_size() * (dtype[0] if isinstance(dtype, tuple) else dtype).itemsize
