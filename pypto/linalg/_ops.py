"""The rows of the operator table for matrices: product, factorisations, solves, and any of them over batches.

On one device the local part is the matrix, and LAPACK through SciPy does all of it. On several the SPMD algorithms of
this package do, on square tiles over a two-dimensional grid.
"""

import warnings
from functools import lru_cache
from math import prod

import numpy as np
import scipy.linalg as sl

from pypto.comm import SerialComm
from pypto.grid import ProcessGrid
from pypto.layout import Cyclic, Layout
from pypto.linalg import _alone, _cholesky, _lu, _matmul, _triangular
from pypto.opdef import Env, register, table
from pypto.status import agree, agreed
from pypto.tiles import TiledArray, World

__all__ = ["place_batch", "square_tiles"]

_ALONE = ProcessGrid.of((1,))


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


def _finite(world: World, *operands: TiledArray) -> None:
    """Raise ValueError on every rank if any rank's part holds Inf or NaN. Collective."""
    bad = any(a.dtype.kind in "fc" and not np.isfinite(a.local).all() for a in operands)
    agree(world, ValueError("array must not contain infs or NaNs") if bad else None)


def _square(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"{name} needs a square matrix; got shape {shape}")


def _rows_match(a: tuple[int, ...], b: tuple[int, ...], name: str) -> None:
    _square(a, name)
    if len(b) != 2 or b[0] != a[0]:
        raise ValueError(f"{name}: a matrix of shape {a} and a right-hand side of shape {b} do not match")


def _common(dtypes) -> np.dtype:
    return np.result_type(*dtypes)


def _cast(a: TiledArray, dtype: np.dtype) -> TiledArray:
    return a if a.dtype == dtype else TiledArray(a.layout, a.local.astype(dtype, order="K"), a.world)


def _stored(value: np.ndarray, layout: Layout, dtype: np.dtype, world: World) -> TiledArray:
    out = TiledArray.empty(layout, dtype, world)
    out.local[...] = value
    return out


def _wrapped(value: np.ndarray, layout: Layout, world: World) -> TiledArray:
    """Wrap a local result where its memory order is the layout's, else copy it into one."""
    fits = value.flags.f_contiguous if layout.order == (1, 0) and value.ndim == 2 else value.flags.c_contiguous
    return TiledArray(layout, value, world) if fits else _stored(value, layout, value.dtype, world)


def _one_device(call, name: str):
    """Run a SciPy routine; what it raises is the same on every rank, since there is one."""
    try:
        return call()
    except (np.linalg.LinAlgError, ValueError) as error:
        raise agreed(error) from None


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
    if len(layout.shape) == 2:
        return _matmul.gemm(_cast(a, dtype), _cast(b, dtype), layout, conj_a=conj_a, conj_b=conj_b)
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

# lu_factor: attributes (check_finite,); results (lu, piv)


def _infer_lu(shapes, dtypes, attrs):
    (m, n) = shapes[0]
    return (shapes[0], (min(m, n),)), (dtypes[0], np.dtype(np.int32))


def _place_lu(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    piv = Layout.replicated((min(layouts[0].shape),), tiles.grid)
    return (tiles,), (tiles, piv)


def _run_lu(world, ins, layout, attrs, dtype):
    (a,) = ins
    if attrs[0]:
        _finite(world, a)
    if world.size == 1:
        lu, piv = _one_device(lambda: sl.lu_factor(a.local, check_finite=False), "lu_factor")
        return _wrapped(lu, layout[0], world), TiledArray(layout[1], piv.astype(np.int32), world)
    piv, info = _lu.getrf(a)
    if info:
        warnings.warn(f"Diagonal number {info} is exactly zero. Singular matrix.", sl.LinAlgWarning, stacklevel=2)
    return a, _stored_piv(piv, layout[1], world)


def _stored_piv(piv, layout: Layout, world: World) -> TiledArray:
    out = TiledArray.empty(layout, np.dtype(np.int32), world)
    if layout.holds(world.rank):
        out.local[...] = piv
    return out


def _cost_lu(shapes, out_shape, attrs) -> int:
    m, n = max(shapes[0]), min(shapes[0])
    return m * n * n - n**3 // 3


def _own_copy(layouts, dtype, attrs) -> int:
    """Bytes of the copy of the matrix in which a solve factors it."""
    return layouts[0].max_local_size() * (dtype[0] if isinstance(dtype, tuple) else dtype).itemsize


register(
    name="lu_factor",
    infer=_infer_lu,
    place=_place_lu,
    run=_run_lu,
    cost=_cost_lu,
    overwrites=(0,),
    kept=True,
    family="factorisation",
)

# lu_solve: operands (lu, piv, b), attributes (trans, check_finite)


def _infer_lu_solve(shapes, dtypes, attrs):
    _rows_match(shapes[0], shapes[2], "lu_solve")
    if shapes[1] != shapes[0][:1]:
        raise ValueError(f"lu_solve: {shapes[0][0]} pivots are needed; got an array of shape {shapes[1]}")
    return shapes[2], _common((dtypes[0], dtypes[2]))


_TRANS = ("N", "T", "C")


def _place_lu_solve(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    piv = Layout.replicated(layouts[1].shape, tiles.grid)
    b = _rhs_layout(env, tiles, out_shape, _TRANS[attrs[0]])
    return (tiles, piv, b), b


def _rhs_layout(env: Env, tiles: Layout, shape: tuple[int, ...], trans: str) -> Layout:
    if env.size == 1:
        return env.layout(shape)
    return _triangular.trsm_layout(tiles, shape[1], trans)


def _run_lu_solve(world, ins, layout, attrs, dtype):
    a, piv, b = ins
    trans, check_finite = attrs
    if check_finite:
        _finite(world, a, b)
    if world.size == 1:
        x = _one_device(lambda: sl.lu_solve((a.local, piv.local), b.local, trans=trans, check_finite=False), "lu_solve")
        return _wrapped(x, layout, world)
    a, b = _cast(a, dtype), _cast(b, dtype)
    _lu.getrs(a, piv.local.astype(np.int64), b, _TRANS[trans])
    return b


def _cost_solve(shapes, out_shape, attrs) -> int:
    return 2 * shapes[0][0] ** 2 * out_shape[-1]


register(
    name="lu_solve",
    infer=_infer_lu_solve,
    place=_place_lu_solve,
    run=_run_lu_solve,
    cost=_cost_solve,
    overwrites=(2,),
    family="solve",
)

# solve: attributes (assume_a, lower, check_finite)


def _infer_solve(shapes, dtypes, attrs):
    _rows_match(shapes[0], shapes[1], "solve")
    return shapes[1], _common(dtypes)


def _place_solve(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    b = _rhs_layout(env, tiles, out_shape, "N")
    return (tiles, b), b


def _run_solve(world, ins, layout, attrs, dtype):
    a, b = ins
    assume_a, lower, check_finite = attrs
    if check_finite:
        _finite(world, a, b)
    if world.size == 1:
        x = _one_device(lambda: _alone.solve(a.local, b.local, assume_a, lower), "solve")
        return _wrapped(x, layout, world)
    a, b = _cast(a, dtype), _cast(b, dtype)
    if assume_a in ("pos", "positive definite"):
        info = _cholesky.potrf(a, lower)
        if info:
            raise agreed(np.linalg.LinAlgError(_not_positive(info)))
        _cholesky.potrs(a, b, lower)
        return b
    piv, info = _lu.getrf(a)
    if info:
        raise agreed(np.linalg.LinAlgError(f"Matrix is singular: pivot {info} is exactly zero."))
    _lu.getrs(a, piv, b, "N")
    return b


def _not_positive(info: int) -> str:
    return f"{info}-th leading minor of the array is not positive definite"


def _cost_factor_solve(shapes, out_shape, attrs) -> int:
    n = shapes[0][0]
    return 2 * n**3 // 3 + 2 * n * n * out_shape[-1]


register(
    name="solve",
    infer=_infer_solve,
    place=_place_solve,
    run=_run_solve,
    cost=_cost_factor_solve,
    overwrites=(0, 1),
    workspace=_own_copy,
    family="solve",
)

# cholesky: attributes (lower, clean, check_finite)


def _infer_cholesky(shapes, dtypes, attrs):
    _square(shapes[0], "cholesky")
    return shapes[0], dtypes[0]


def _place_cholesky(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    return (tiles,), tiles


def _run_cholesky(world, ins, layout, attrs, dtype):
    (a,) = ins
    lower, clean, check_finite = attrs
    if check_finite:
        _finite(world, a)
    if world.size == 1:
        routine = sl.cholesky if clean else sl.cho_factor
        made = _one_device(lambda: routine(a.local, lower=lower, check_finite=False), "cholesky")
        return _wrapped(made if clean else made[0], layout, world)
    info = _cholesky.potrf(a, lower)
    if info:
        raise agreed(np.linalg.LinAlgError(_not_positive(info)))
    return table["tril" if lower else "triu"].run(world, [a], layout, (0,), dtype) if clean else a


register(
    name="cholesky",
    infer=_infer_cholesky,
    place=_place_cholesky,
    run=_run_cholesky,
    cost=lambda shapes, out_shape, attrs: shapes[0][0] ** 3 // 3,
    overwrites=(0,),
    kept=True,
    family="factorisation",
)

# cho_solve: operands (c, b), attributes (lower, check_finite)


def _infer_cho_solve(shapes, dtypes, attrs):
    _rows_match(shapes[0], shapes[1], "cho_solve")
    return shapes[1], _common(dtypes)


def _place_cho_solve(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    b = _rhs_layout(env, tiles, out_shape, "N")
    return (tiles, b), b


def _run_cho_solve(world, ins, layout, attrs, dtype):
    c, b = ins
    lower, check_finite = attrs
    if check_finite:
        _finite(world, c, b)
    if world.size == 1:
        x = _one_device(lambda: sl.cho_solve((c.local, lower), b.local, check_finite=False), "cho_solve")
        return _wrapped(x, layout, world)
    c, b = _cast(c, dtype), _cast(b, dtype)
    _cholesky.potrs(c, b, lower)
    return b


register(
    name="cho_solve",
    infer=_infer_cho_solve,
    place=_place_cho_solve,
    run=_run_cho_solve,
    cost=_cost_solve,
    overwrites=(1,),
    family="solve",
)

# solve_triangular: operands (a, b), attributes (trans, lower, unit, check_finite)


def _infer_triangular(shapes, dtypes, attrs):
    _rows_match(shapes[0], shapes[1], "solve_triangular")
    return shapes[1], _common(dtypes)


def _place_triangular(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    b = _rhs_layout(env, tiles, out_shape, _TRANS[attrs[0]])
    return (tiles, b), b


def _zero_on_diagonal(world: World, a: TiledArray) -> int:
    """Return 1 + the index of the first exact zero on the diagonal, 0 if there is none. Collective."""
    n = a.shape[0]
    first = np.array([n], np.int64)
    if a.layout.holds(world.rank):
        i, j = (a.layout.indices(k, world.rank) for k in (0, 1))
        both, at_i, at_j = np.intersect1d(i, j, return_indices=True)
        zeros = both[a.local[at_i, at_j] == 0]
        if len(zeros):
            first[0] = zeros[0]
    world.comm.allreduce(first, "min")
    return int(first[0]) + 1 if first[0] < n else 0


def _run_triangular(world, ins, layout, attrs, dtype):
    a, b = ins
    trans, lower, unit, check_finite = attrs
    if check_finite:
        _finite(world, a, b)
    if world.size == 1:
        x = _one_device(
            lambda: sl.solve_triangular(a.local, b.local, trans=trans, lower=lower, unit_diagonal=unit, check_finite=False),
            "solve_triangular",
        )
        return _wrapped(x, layout, world)
    a, b = _cast(a, dtype), _cast(b, dtype)
    at = 0 if unit else _zero_on_diagonal(world, a)
    if at:
        raise agreed(np.linalg.LinAlgError(f"singular matrix: resolution failed at diagonal {at - 1}"))
    _triangular.trsm(a, b, lower, _TRANS[trans], unit)
    return b


register(
    name="solve_triangular",
    infer=_infer_triangular,
    place=_place_triangular,
    run=_run_triangular,
    cost=lambda shapes, out_shape, attrs: shapes[0][0] ** 2 * out_shape[-1],
    overwrites=(1,),
    family="solve",
)

# permutation: operand piv (row interchanges), attributes (m,); result: A[perm] is what the factors multiply to


def _run_permutation(world, ins, layout, attrs, dtype):
    perm = np.arange(attrs[0], dtype=np.int64)
    for i, p in enumerate(ins[0].local):
        perm[i], perm[p] = perm[p], perm[i]
    return TiledArray(layout, perm, world)


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
    alone = World(SerialComm())
    lead = ins[0].local.shape[: len(ins[0].shape) - attrs[2][0]]
    error = None
    try:
        for at in np.ndindex(*lead):
            parts = [TiledArray(_whole(x.local[at].shape), np.asfortranarray(x.local[at]), alone) for x in ins]
            shapes = [_whole(o.local[at].shape) for o in outs]
            made = table[name].run(alone, parts, tuple(shapes) if several else shapes[0], inner, dtype)
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
