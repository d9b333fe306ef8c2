"""Reductions: each rank reduces its part, the ranks that share the result combine theirs.

Attributes of every row: ``(axes, keepdims, extra)`` with `axes` a sorted tuple of non-negative axes.
"""

from functools import lru_cache
from math import prod

import numpy as np

from pypto.dtypes import checked
from pypto.layout.layout import Layout
from pypto.ops.opdef import Env, register
from pypto.tiles.tiled import TiledArray, World

__all__ = ["REDUCTIONS", "reduced_shape"]


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """Return the shape after a reduction."""
    if keepdims:
        return tuple(1 if a in axes else n for a, n in enumerate(shape))
    return tuple(n for a, n in enumerate(shape) if a not in axes)


@lru_cache(maxsize=1024)
def _reduced_layout(layout: Layout, axes: tuple[int, ...], keepdims: bool) -> Layout:
    shape = reduced_shape(layout.shape, axes, keepdims)
    if keepdims:
        dims = tuple(None if a in axes else d for a, d in enumerate(layout.dims))
        return Layout(shape, layout.grid, dims, (), layout.order)
    kept = [a for a in range(len(layout.shape)) if a not in axes]
    order = tuple(kept.index(a) for a in layout.order if a in kept)
    return Layout(shape, layout.grid, tuple(layout.dims[a] for a in kept), (), order)


def _place(env: Env, layouts: list[Layout], out_shape, attrs):
    (layout,) = layouts
    if layout.partial:
        layout = env.layout(layout.shape)
    return (layout,), _reduced_layout(layout, attrs[0], attrs[1])


def _combining_axes(layout: Layout, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the grid axes over which the reduced axes are divided."""
    return tuple(sorted(layout.dims[a].axis for a in axes if layout.dims[a] is not None and layout.extent(a) > 1))


def _combine(a: TiledArray, value: np.ndarray, axes: tuple[int, ...], op: str) -> np.ndarray:
    """Combine the ranks' partial results `value` in place."""
    grid_axes = _combining_axes(a.layout, axes)
    if grid_axes and a.layout.holds(a.world.rank):
        a.world.grid_comm(a.layout.grid, grid_axes).allreduce(value, op)
    return value


def _stored(value, layout: Layout, dtype: np.dtype, world: World) -> TiledArray:
    """Store a local result, or nothing on a rank outside the grid, in the layout's order."""
    out = TiledArray.empty(layout, dtype, world)
    if layout.holds(world.rank):
        out.local[...] = value
    return out


def _run(ufunc: np.ufunc, op: str):
    def run(world, ins, layout, attrs, dtype):
        (a,) = ins
        axes, keepdims, _ = attrs
        local = a.local if op not in ("lor", "land") else a.local.astype(bool, copy=False)
        kwargs = {}
        if op in ("sum", "prod"):
            kwargs["dtype"] = dtype
        elif op in ("max", "min") and any(a.local.shape[x] == 0 for x in axes):
            kwargs["initial"] = _worst(op, a.dtype)  # this rank holds none of the elements
        value = np.asarray(ufunc.reduce(local, axis=axes, keepdims=keepdims, **kwargs))
        if not _combining_axes(a.layout, axes):
            return _stored(value, layout, dtype, world)
        value = np.array(value, dtype, order="C")
        if op in ("max", "min"):
            return _stored(_extreme(a, value, axes, ufunc), layout, dtype, world)
        return _stored(_combine(a, value, axes, op), layout, dtype, world)

    return run


def _extreme(a: TiledArray, value: np.ndarray, axes: tuple[int, ...], ufunc: np.ufunc) -> np.ndarray:
    """Combine maxima or minima so that NaN propagates, which a message library's own maximum does not promise."""
    if not a.layout.holds(a.world.rank):
        return value
    return ufunc.reduce(a.world.grid_comm(a.layout.grid, _combining_axes(a.layout, axes)).allgather(value), axis=0)


def _worst(op: str, dtype: np.dtype):
    """Return the neutral element of max or min for `dtype`."""
    if dtype.kind == "b":
        return op == "min"
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.min if op == "max" else info.max
    worst = -np.inf if op == "max" else np.inf
    return complex(worst, worst) if dtype.kind == "c" else worst


def _infer_accumulate(shapes, dtypes, attrs):
    """sum and prod: small integers accumulate in 64 bits, as NumPy's do; `extra` is the dtype asked for."""
    axes, keepdims, asked = attrs
    dtype = checked(asked) if asked is not None else np.add.reduce(np.empty(0, dtypes[0])).dtype
    return reduced_shape(shapes[0], axes, keepdims), dtype


def _infer_extreme(shapes, dtypes, attrs):
    axes, keepdims, _ = attrs
    if any(shapes[0][a] == 0 for a in axes) or (0 in shapes[0] and len(axes) == len(shapes[0])):
        raise ValueError(f"max and min need at least one element along the reduced axes; the shape is {shapes[0]}")
    return reduced_shape(shapes[0], axes, keepdims), dtypes[0]


def _infer_logical(shapes, dtypes, attrs):
    axes, keepdims, _ = attrs
    return reduced_shape(shapes[0], axes, keepdims), np.dtype(bool)


def _infer_index(shapes, dtypes, attrs):
    axes, keepdims, _ = attrs
    if any(shapes[0][a] == 0 for a in axes):
        raise ValueError(f"argmax and argmin need at least one element along the axis; the shape is {shapes[0]}")
    return reduced_shape(shapes[0], axes, keepdims), np.dtype(np.int64)


def _infer_count(shapes, dtypes, attrs):
    axes, keepdims, _ = attrs
    return reduced_shape(shapes[0], axes, keepdims), np.dtype(np.int64)


def _cost(shapes, out_shape, attrs) -> int:
    return prod(shapes[0])


def _run_count(world, ins, layout, attrs, dtype):
    (a,) = ins
    axes, keepdims, _ = attrs
    value = np.array(np.count_nonzero(a.local, axis=axes, keepdims=keepdims), np.int64)
    return _stored(_combine(a, value, axes, "sum"), layout, dtype, world)


def _run_index(largest: bool):
    """argmax, argmin over one axis, or over all of them in C order: the first of equals, NaN before all."""
    pick = np.argmax if largest else np.argmin

    def run(world, ins, layout, attrs, dtype):
        (a,) = ins
        axes, keepdims, _ = attrs
        shape = reduced_shape(a.local.shape, axes, True)
        if a.local.size:
            # One key per element along the reduced axes, in C order of their global indices.
            where = pick(_flattened(a.local, axes), axis=-1).reshape(shape)
            index, value = _global_index(a, axes, where)
        else:
            index = np.full(shape, np.iinfo(np.int64).max)
            value = np.zeros(shape, a.dtype)
        best, index = _first_best(a, axes, value, index, largest)
        if layout.holds(world.rank):
            index = index.reshape(layout.local_shape(world.rank))
        return _stored(index, layout, dtype, world)

    return run


def _flattened(local: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Move `axes` to the end and flatten them in C order."""
    kept = [x for x in range(local.ndim) if x not in axes]
    moved = local.transpose(*kept, *axes)
    return moved.reshape(*(local.shape[x] for x in kept), -1)


def _global_index(a: TiledArray, axes: tuple[int, ...], where: np.ndarray):
    """Return the global (C order, over `axes`) index and the value of each local winner."""
    local_extent = [a.local.shape[x] for x in axes]
    parts = np.unravel_index(where, local_extent)
    index = np.zeros(where.shape, np.int64)
    select = list(np.ogrid[tuple(slice(n) for n in where.shape)])
    for x, il in zip(axes, parts, strict=True):
        index = index * a.shape[x] + a.layout.indices(x, a.world.rank)[il]
        select[x] = il
    return index, a.local[tuple(select)]


def _first_best(a: TiledArray, axes, value, index, largest):
    """Agree on the best value and, among equals, the least index."""
    grid_axes = _combining_axes(a.layout, axes)
    if not grid_axes or not a.layout.holds(a.world.rank):
        return value, index
    comm = a.world.grid_comm(a.layout.grid, grid_axes)
    values = comm.allgather(np.ascontiguousarray(value))
    indices = comm.allgather(np.ascontiguousarray(index))
    best, at = values[0], indices[0]
    for v, i in zip(values[1:], indices[1:], strict=True):
        none, only = i == np.iinfo(np.int64).max, at == np.iinfo(np.int64).max
        nan_v, nan_b = v != v, best != best
        ahead = (v > best) if largest else (v < best)
        better = ~none & (only | (nan_v & ~nan_b) | (~nan_b & ahead) | (((v == best) | (nan_v & nan_b)) & (i < at)))
        best, at = np.where(better, v, best), np.where(better, i, at)
    return best, at


REDUCTIONS = ("sum", "prod", "max", "min", "all", "any", "count_nonzero", "argmax", "argmin")
for _name, _ufunc, _op, _infer in (
    ("sum", np.add, "sum", _infer_accumulate),
    ("prod", np.multiply, "prod", _infer_accumulate),
    ("max", np.maximum, "max", _infer_extreme),
    ("min", np.minimum, "min", _infer_extreme),
    ("all", np.logical_and, "land", _infer_logical),
    ("any", np.logical_or, "lor", _infer_logical),
):
    register(name=_name, infer=_infer, place=_place, run=_run(_ufunc, _op), cost=_cost, family="reduction")
register(name="count_nonzero", infer=_infer_count, place=_place, run=_run_count, cost=_cost, family="reduction")
for _name, _largest in (("argmax", True), ("argmin", False)):
    register(name=_name, infer=_infer_index, place=_place, run=_run_index(_largest), cost=_cost, family="reduction")
