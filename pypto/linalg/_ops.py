"""The rows of the operator table for matrices: product, factorisations, solves, and any of them over batches.

On one device the local part is the matrix, and LAPACK through SciPy does all of it. On several the SPMD algorithms of
this package do, on square tiles over a two-dimensional grid.
"""

from functools import lru_cache
from math import prod

import numpy as np

from pypto.comm.comm import SerialComm
from pypto.layout.grid import ProcessGrid
from pypto.layout.layout import Layout
from pypto.linalg import _matmul
from pypto.linalg._lines import diagonal
from pypto.linalg._rows import cast, place_batch, square_tiles, wrapped
from pypto.linalg._solvers import permutation
from pypto.linalg._tiled import Tiles, exchange_rows
from pypto.ops.opdef import register, table
from pypto.tiles.status import agree
from pypto.tiles.tiled import TiledArray, World

__all__: list[str] = []

_ALONE = ProcessGrid.of((1,))


# matmul: attributes (conj_a, conj_b)


@lru_cache(maxsize=256)
def _product_dtype(x: np.dtype, y: np.dtype) -> np.dtype:
    return np.matmul(np.zeros((1, 1), x), np.zeros((1, 1), y)).dtype


def _infer_matmul(shapes, dtypes, attrs):
    a, b = shapes
    if a[-1] != b[-2]:
        raise ValueError(f"matmul: inner dimensions do not match, {a} @ {b}: {a[-1]} is not {b[-2]}")
    batch = np.broadcast_shapes(a[:-2], b[:-2])
    return (*batch, a[-2], b[-1]), _product_dtype(*dtypes)


def _place_matmul(env, layouts, out_shape, attrs):
    a, b = layouts
    if len(out_shape) == 2:
        if a.partial or b.partial:
            a, b = (env.layout(x.shape) if x.partial else x for x in (a, b))
        return (a, b), _matmul.result_layout(a, b)
    out = place_batch(env, out_shape, len(out_shape) - 2)
    return tuple(_beside(out, x.shape) for x in (a, b)), out


def _beside(out: Layout, shape: tuple[int, ...]) -> Layout:
    """Return the layout of a batch operand that is broadcast against `out`: matrices whole, batch axes as there."""
    lead = len(out.shape) - len(shape)
    dims = tuple(
        out.dims[lead + k] if k < len(shape) - 2 and n == out.shape[lead + k] and n != 1 else None for k, n in enumerate(shape)
    )
    return Layout(shape, out.grid, dims, (), tuple(range(len(shape))))


def _run_matmul(world, ins, layout, attrs, dtype):
    conj_a, conj_b = attrs
    a, b = ins
    if len(layout.shape) == 2 and dtype.char in "?e":  # sums in single precision: of halves, or of ones, if any
        a, b = (cast(x, np.dtype(np.float32)) for x in (a, b))
        return cast(_matmul.gemm(a, b, layout), dtype)
    if len(layout.shape) == 2:
        return _matmul.gemm(cast(a, dtype), cast(b, dtype), layout, conj_a=conj_a, conj_b=conj_b)
    out = TiledArray.empty(layout, dtype, world)
    if layout.holds(world.rank):
        x = a.local.conj() if conj_a else a.local
        y = b.local.conj() if conj_b else b.local
        np.matmul(x, y, out=out.local)
    return out


def _cost_matmul(shapes, out_shape, attrs) -> int:
    return 2 * prod(out_shape) * shapes[0][-1]


register(
    name="matmul",
    infer=_infer_matmul,
    place=_place_matmul,
    run=_run_matmul,
    cost=_cost_matmul,
    workspace=lambda layouts, dtype, attrs: sum(x.max_local_size() for x in layouts) * dtype.itemsize // 10,
    family="contraction",
)

# permutation: operand piv (row interchanges), attributes (m,); result: A[perm] is what the factors multiply to


def _run_permutation(world, ins, layout, attrs, dtype):
    return TiledArray(layout, permutation(ins[0].local, attrs[0]), world)


register(
    name="permutation",
    infer=lambda shapes, dtypes, attrs: ((attrs[0],), np.dtype(np.int64)),
    place=lambda env, layouts, out_shape, attrs: ((env.replicated(layouts[0].shape),), env.replicated(out_shape)),
    run=_run_permutation,
    family="factorisation",
)

# permutation_matrix: operand perm, attributes (dtype,); result P with P[perm[j], j] = 1


def _run_permutation_matrix(world, ins, layout, attrs, dtype):
    out = TiledArray.empty(layout, dtype, world)
    out.local[...] = 0
    if out.local.size:
        i, j = (layout.indices(k, world.rank) for k in (0, 1))
        target = ins[0].local[j]
        at = np.searchsorted(i, target)
        hit = (at < len(i)) & (i[np.minimum(at, len(i) - 1)] == target)
        out.local[at[hit], np.nonzero(hit)[0]] = 1
    return out


register(
    name="permutation_matrix",
    infer=lambda shapes, dtypes, attrs: (shapes[0] * 2, np.dtype(attrs[0])),
    place=lambda env, layouts, out_shape, attrs: ((env.replicated(layouts[0].shape),), env.layout(out_shape)),
    run=_run_permutation_matrix,
    family="factorisation",
)

# inverse_permutation: operand perm


def _run_inverse_permutation(world, ins, layout, attrs, dtype):
    return TiledArray(layout, np.argsort(ins[0].local), world)


register(
    name="inverse_permutation",
    infer=lambda shapes, dtypes, attrs: (shapes[0], dtypes[0]),
    place=lambda env, layouts, out_shape, attrs: ((env.replicated(out_shape),), env.replicated(out_shape)),
    run=_run_inverse_permutation,
    family="factorisation",
)

# permute_rows: operands (a, perm); row i of A becomes row perm[i]


def _place_permute_rows(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    return (tiles, env.replicated(layouts[1].shape)), tiles


def _run_permute_rows(world, ins, layout, attrs, dtype):
    a, perm = ins[0], ins[1].local
    if world.size == 1:
        out = np.empty_like(a.local)
        out[perm] = a.local
        return wrapped(out, layout, world)
    if a.layout.holds(world.rank):
        moved = np.flatnonzero(perm != np.arange(len(perm)))
        exchange_rows(Tiles(a), a.local, moved, np.ascontiguousarray(perm[moved]))
    return a


register(
    name="permute_rows",
    infer=lambda shapes, dtypes, attrs: (shapes[0], dtypes[0]),
    place=_place_permute_rows,
    run=_run_permute_rows,
    overwrites=(0,),
    family="factorisation",
)

# main_diagonal: on every rank


register(
    name="main_diagonal",
    infer=lambda shapes, dtypes, attrs: ((min(shapes[0]),), dtypes[0]),
    place=lambda env, layouts, out_shape, attrs: ((square_tiles(env, layouts[0]),), env.replicated(out_shape)),
    run=lambda world, ins, layout, attrs, dtype: TiledArray(layout, diagonal(ins[0]), world),
    family="factorisation",
)

# batch: attributes (name of a row, its attributes, ranks of the operands within one problem)


def _infer_batch(shapes, dtypes, attrs):
    name, inner, ranks = attrs
    lead = shapes[0][: len(shapes[0]) - ranks[0]]
    shape, dtype = table[name].infer([s[len(lead) :] for s in shapes], list(dtypes), inner)
    return (tuple((*lead, *s) for s in shape) if isinstance(dtype, tuple) else (*lead, *shape)), dtype


def _place_of_batch(env, layouts, out_shape, attrs):
    batch = len(layouts[0].shape) - attrs[2][0]
    first = place_batch(env, layouts[0].shape, batch)
    axis = next(a for a, d in enumerate(first.dims) if d is not None)

    def like(shape):
        dims = tuple(first.dims[axis] if a == axis else None for a in range(len(shape)))
        return Layout(shape, first.grid, dims, (), tuple(range(len(shape))))

    several = bool(out_shape) and isinstance(out_shape[0], tuple)
    return tuple(like(x.shape) for x in layouts), tuple(map(like, out_shape)) if several else like(out_shape)


def _run_batch(world, ins, layout, attrs, dtype):
    """Solve this rank's problems one by one, each as on one device; the first failure is every rank's."""
    name, inner, _ = attrs
    several = isinstance(layout, tuple)
    outs = [
        TiledArray.empty(x, d, world) for x, d in zip(*((layout, dtype) if several else ((layout,), (dtype,))), strict=True)
    ]
    alone, call = World(SerialComm(), incidents=world.incidents), table[name].on(1)
    lead = ins[0].local.shape[: len(ins[0].shape) - attrs[2][0]]
    error = None
    try:
        for at in np.ndindex(*lead):
            parts = [TiledArray(_whole(x.local[at].shape), np.asfortranarray(x.local[at]), alone) for x in ins]
            shapes = [_whole(o.local[at].shape) for o in outs]
            made = call(alone, parts, tuple(shapes) if several else shapes[0], inner, dtype)
            for out, value in zip(outs, made if several else (made,), strict=True):
                out.local[at] = value.local
    except (np.linalg.LinAlgError, ValueError) as e:
        error = e
    agree(world, error)
    return tuple(outs) if several else outs[0]


def _whole(shape: tuple[int, ...]) -> Layout:
    return Layout.replicated(shape, _ALONE)


register(
    name="batch",
    infer=_infer_batch,
    place=_place_of_batch,
    run=_run_batch,
    cost=lambda shapes, out_shape, attrs: 0,
    family="batch",
)
