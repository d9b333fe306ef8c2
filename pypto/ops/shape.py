"""Operators that move or rename elements: transpose, unit axes, slices, concatenation, reshape, broadcast, repartition."""

from functools import lru_cache
from math import prod

import numpy as np

from pypto.dtypes import checked
from pypto.layout.layout import Cyclic, Layout
from pypto.ops.opdef import Env, register, restrict
from pypto.tiles.redistribute import redistribute, start
from pypto.tiles.tiled import TiledArray, World

__all__: list[str] = []


def _same_dtype(shape_of):
    def infer(shapes, dtypes, attrs):
        return shape_of(shapes, attrs), dtypes[0]

    return infer


def _settled(env: Env, layout: Layout) -> Layout:
    """Return a layout without partial sums."""
    return env.layout(layout.shape) if layout.partial else layout


# transpose: attributes (axes,)


def _place_transpose(env, layouts, out_shape, attrs):
    source = _settled(env, layouts[0])
    return (source,), source.transpose(attrs[0])


register(
    name="transpose",
    infer=_same_dtype(lambda shapes, attrs: tuple(shapes[0][a] for a in attrs[0])),
    place=_place_transpose,
    run=lambda world, ins, layout, attrs, dtype: TiledArray(layout, ins[0].local.transpose(attrs[0]), world),
    view=True,
    local=True,
    family="shape",
)

# unit axes: attributes (new shape,); only axes of length one appear or vanish


def _kept_axes(shape: tuple[int, ...], new: tuple[int, ...]) -> list[int | None]:
    """Return for each new axis the old one that it is, None for a new axis of length one."""
    old = [a for a, n in enumerate(shape) if n != 1]
    return [old.pop(0) if n != 1 else None for n in new]


@lru_cache(maxsize=2048)
def _unit_layout(source: Layout, new: tuple[int, ...]) -> Layout:
    kept = _kept_axes(source.shape, new)
    dims = tuple(None if a is None else source.dims[a] for a in kept)
    grid, order = source.grid, [kept.index(a) for a in source.order if a in kept]
    order += [a for a in range(len(new)) if a not in order]
    if len(new) == 2 and order not in ([0, 1], [1, 0]):
        order = [1, 0]
    return Layout(new, grid, dims, (), tuple(order))


def _unit_source(source: Layout) -> Layout:
    """Return `source` with every axis of length one whole, so that it can be dropped."""
    dims = tuple(None if n == 1 else d for n, d in zip(source.shape, source.dims, strict=True))
    return source if dims == source.dims else source.replace(dims=dims)


def _place_unit_axes(env, layouts, out_shape, attrs):
    source = _unit_source(_settled(env, layouts[0]))
    return (source,), _unit_layout(source, attrs[0])


def _run_unit_axes(world, ins, layout, attrs, dtype):
    local = ins[0].local
    if not layout.holds(world.rank):
        return TiledArray.empty(layout, dtype, world)
    return TiledArray(layout, _squeeze_to(local, layout.local_shape(world.rank)), world)


def _squeeze_to(local: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Insert and remove axes of length one as a view, whatever the storage order."""
    local = local[(*(0 if n == 1 else slice(None) for n in local.shape), ...)]  # the ellipsis keeps an array of no axes one
    return local[(*(None if n == 1 else slice(None) for n in shape), ...)]


register(
    name="unit_axes",
    infer=_same_dtype(lambda shapes, attrs: attrs[0]),
    place=_place_unit_axes,
    run=_run_unit_axes,
    view=True,
    local=True,
    family="shape",
)

# slice: attributes (((start, step, count), ...),), one per axis


def _sliced_dim(layout: Layout, axis: int, cut: tuple[int, int, int]) -> Cyclic | None:
    """Return how a slice of one axis is dealt: where it lies if the tiles still match, else in even blocks or tiles."""
    dim = layout.dims[axis]
    if dim is None:
        return None
    first, step, count = cut
    p = layout.extent(axis)
    if dim.nb * p >= layout.shape[axis] and count < layout.shape[axis]:
        return Cyclic(dim.axis, max(1, -(-count // p)), 0)
    if step == 1 and first % dim.nb == 0:
        return Cyclic(dim.axis, dim.nb, (dim.src + first // dim.nb) % p)
    return Cyclic(dim.axis, dim.nb, dim.src)


def _place_slice(env, layouts, out_shape, attrs):
    source = _settled(env, layouts[0])
    dims = tuple(_sliced_dim(source, a, cut) for a, cut in enumerate(attrs[0]))
    return (source,), Layout(out_shape, source.grid, dims, (), source.order)


def _run_slice(world, ins, layout, attrs, dtype):
    out = TiledArray.empty(layout, dtype, world)
    start(ins[0], out, tuple((n, first, step, 0, 1) for first, step, n in attrs[0])).wait()
    return out


register(
    name="slice",
    infer=_same_dtype(lambda shapes, attrs: tuple(n for _, _, n in attrs[0])),
    place=_place_slice,
    run=_run_slice,
    family="shape",
)

# concat: attributes (axis,)


def _infer_concat(shapes, dtypes, attrs):
    (axis,) = attrs
    for s in shapes[1:]:
        if s[:axis] + s[axis + 1 :] != shapes[0][:axis] + shapes[0][axis + 1 :]:
            raise ValueError(f"concat along axis {axis} needs shapes that agree on the other axes; got {shapes}")
    total = sum(s[axis] for s in shapes)
    return (*shapes[0][:axis], total, *shapes[0][axis + 1 :]), checked(np.result_type(*dtypes))


def _place_concat(env, layouts, out_shape, attrs):
    (axis,) = attrs
    settled = tuple(_settled(env, layout) for layout in layouts)
    first = settled[0]
    dim = first.dims[axis]
    if dim is None and any(d is not None for d in first.dims):
        return settled, first.replace(shape=out_shape)
    return settled, env.layout(out_shape)


def _run_concat(world, ins, layout, attrs, dtype):
    (axis,) = attrs
    out = TiledArray.empty(layout, dtype, world)
    offset, transfers = 0, []
    for a in ins:
        if a.dtype != dtype:
            a = TiledArray(a.layout, a.local.astype(dtype), world)
        region = tuple((n, 0, 1, offset if x == axis else 0, 1) for x, n in enumerate(a.shape))
        transfers.append(start(a, out, region))
        offset += a.shape[axis]
    for t in transfers:
        t.wait()
    return out


register(name="concat", infer=_infer_concat, place=_place_concat, run=_run_concat, family="shape")

# broadcast_to: attributes (shape,)


def _infer_broadcast(shapes, dtypes, attrs):
    (shape,) = attrs
    if np.broadcast_shapes(shapes[0], shape) != shape:
        raise ValueError(f"an array of shape {shapes[0]} cannot be broadcast to shape {shape}")
    return shape, dtypes[0]


def _place_broadcast(env, layouts, out_shape, attrs):
    source = _unit_source(_settled(env, layouts[0]))
    if all(d is None for d in source.dims):
        out = env.layout(out_shape)  # nobody need hold all of the result
        return (restrict(out, source.shape),), out
    lead = len(out_shape) - len(source.shape)
    dims = (None,) * lead + source.dims
    order = (*range(lead), *(a + lead for a in source.order))
    return (source,), Layout(out_shape, source.grid, dims, (), order)


def _run_broadcast(world, ins, layout, attrs, dtype):
    out = TiledArray.empty(layout, dtype, world)
    if layout.holds(world.rank):
        out.local[...] = ins[0].local
    return out


register(name="broadcast_to", infer=_infer_broadcast, place=_place_broadcast, run=_run_broadcast, local=True, family="shape")

# reshape in C order: attributes (new shape,)


def _infer_reshape(shapes, dtypes, attrs):
    (new,) = attrs
    if prod(shapes[0]) != prod(new):
        raise ValueError(f"an array of shape {shapes[0]} has {prod(shapes[0])} elements; it cannot take shape {new}")
    return new, dtypes[0]


def _c_rows(env: Env, shape: tuple[int, ...]) -> Layout:
    """Return blocks of the first axis over all ranks in C order: each rank holds one interval of the flat index."""
    nb = max(1, -(-shape[0] // env.size)) if shape else 1
    dims = (Cyclic(0, nb), *(None for _ in shape[1:])) if shape else ()
    return Layout(shape, env.everyone(), dims, (), tuple(range(len(shape))))


def _place_reshape(env, layouts, out_shape, attrs):
    return (_c_rows(env, layouts[0].shape),), _c_rows(env, out_shape)


def _flat(layout: Layout) -> Layout:
    """Return the flat index as a one-dimensional block layout; the blocks are those of the rows."""
    if not layout.shape:
        return Layout((1,), layout.grid, (None,), (), (0,))
    width = prod(layout.shape[1:])
    return Layout((layout.shape[0] * width,), layout.grid, (Cyclic(0, max(1, layout.dims[0].nb * width)),), (), (0,))


def _run_reshape(world, ins, layout, attrs, dtype):
    (a,) = ins
    out = TiledArray.empty(layout, dtype, world)
    if prod(layout.shape) == 0:
        return out
    source = TiledArray(_flat(a.layout), a.local.reshape(-1), world)
    target = TiledArray(_flat(layout), out.local.reshape(-1), world)
    start(source, target).wait()
    return out


register(name="reshape", infer=_infer_reshape, place=_place_reshape, run=_run_reshape, family="shape")

# repartition: the layout asked for is the node's distribution


register(
    name="repartition",
    infer=_same_dtype(lambda shapes, attrs: shapes[0]),
    place=lambda env, layouts, out_shape, attrs: ((layouts[0],), env.layout(out_shape, attrs[0])),
    run=lambda world, ins, layout, attrs, dtype: redistribute(ins[0], layout),
    family="shape",
)


def replicate(a: TiledArray, env: Env, world: World) -> np.ndarray:
    """Return all of `a` as one array on every rank. Collective."""
    return redistribute(a, env.replicated(a.shape)).local


# item: attributes (index,); one of several results. The executor picks it, nothing runs.

register(
    name="item",
    infer=lambda shapes, dtypes, attrs: (shapes[0][attrs[0]], dtypes[0][attrs[0]]),
    place=lambda env, layouts, out_shape, attrs: (tuple(layouts), layouts[0][attrs[0]]),
    run=lambda world, ins, layout, attrs, dtype: ins[0][attrs[0]],
    view=True,
    local=True,
    family="shape",
)
