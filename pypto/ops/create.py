"""Operators without operands: constants, ranges, identity, and arrays from a user's function of the indices.

The last attribute of every row is the distribution asked for. Each rank fills its own part; nothing is communicated.
"""

import numpy as np

from pypto.ops.opdef import register
from pypto.tiles.status import agree
from pypto.tiles.tiled import TiledArray, World

__all__: list[str] = []


def _place(env, layouts, out_shape, attrs):
    return (), env.layout(out_shape, attrs[-1])


def _source(name: str, fill, pure: bool = True) -> None:
    """Register a creation operator; ``fill(out, layout, world, attrs)`` writes the local part."""

    def infer(shapes, dtypes, attrs):
        return attrs[0], attrs[1]

    def run(world, ins, layout, attrs, dtype):
        out = TiledArray.empty(layout, dtype, world)
        fill(out.local, layout, world, attrs)
        return out

    register(name=name, infer=infer, place=_place, run=run, pure=pure, local=pure, family="creation")


def _fill_full(local, layout, world, attrs):
    local[...] = attrs[2]


def _fill_eye(local, layout, world, attrs):
    k = attrs[2]
    local[...] = 0
    if local.size:
        i, j = (layout.indices(a, world.rank) for a in (0, 1))
        at = np.searchsorted(i, j - k)
        hit = (at < len(i)) & (i[np.minimum(at, len(i) - 1)] == j - k)
        local[at[hit], np.nonzero(hit)[0]] = 1


def _fill_arange(local, layout, world, attrs):
    """start + i * delta with delta = (start + step) - start rounded to the dtype, as NumPy fills a range."""
    _, dtype, start, step, _ = attrs
    if local.size:
        kind = np.dtype(np.int64) if dtype.kind in "iub" else dtype
        delta = np.asarray(start + step, kind) - np.asarray(start, kind)
        index = layout.indices(0, world.rank)
        local[...] = (np.asarray(start, kind) + index.astype(kind, copy=False) * delta).astype(dtype, copy=False)


def _fill_linspace(local, layout, world, attrs):
    """start + i * step; the last point is `stop` itself where it is included."""
    (shape, dtype, start, stop, intervals, endpoint, _) = attrs
    if local.size:
        index = layout.indices(0, world.rank)
        step = (stop - start) / intervals if intervals else 0.0
        values = index * step + start if step != 0 else index / max(intervals, 1) * (stop - start) + start
        if endpoint and shape[0] > 1:
            values = np.where(index == shape[0] - 1, stop, values)
        if dtype.kind in "iu":
            values = np.floor(values)
        local[...] = values


def _fill_from_function(local, layout, world: World, attrs):
    """Call the user's function once, with open index arrays of this rank's part, where there is one."""
    function = attrs[2]
    error = None
    if local.size:
        index = [layout.indices(a, world.rank) for a in range(local.ndim)]
        try:
            block = np.asarray(function(*np.ix_(*index)))
            if np.broadcast_shapes(block.shape, local.shape) != local.shape:
                raise ValueError(
                    f"the function given to from_function returned shape {block.shape} for a block of shape {local.shape}"
                )
            np.copyto(local, block, casting="same_kind")
        except Exception as e:  # the user's code may raise anything; all ranks learn of it
            error = e
    agree(world, error)


_source("full", _fill_full)
_source("eye", _fill_eye)
_source("arange", _fill_arange)
_source("linspace", _fill_linspace)
_source("from_function", _fill_from_function, pure=False)
