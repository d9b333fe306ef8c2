"""The rows of the operator table for solving: from factors, by triangles and bands, and of whole systems."""

from math import prod

import numpy as np
import scipy.linalg as sl

from pypto.layout.grid import ProcessGrid
from pypto.layout.layout import Layout
from pypto.linalg import _alone, _cholesky, _lu, _refine, _solvers, _triangular
from pypto.linalg._condition import warn_ill_conditioned
from pypto.linalg._lines import diagonal, set_diagonal
from pypto.linalg._rows import (
    cast,
    common,
    finite,
    own_copy,
    rhs_layout,
    rows_match,
    square,
    square_tiles,
    wrapped,
)
from pypto.linalg._structure import structure
from pypto.ops.opdef import register
from pypto.tiles.status import agree, agreed
from pypto.tiles.tiled import TiledArray

__all__: list[str] = []

# lu_solve: operands (lu, piv, b), attributes (trans, check_finite)


def _infer_lu_solve(shapes, dtypes, attrs):
    rows_match(shapes[0], shapes[2], "lu_solve")
    if shapes[1] != shapes[0][:1]:
        raise ValueError(f"lu_solve: {shapes[0][0]} pivots are needed; got an array of shape {shapes[1]}")
    return shapes[2], common((dtypes[0], dtypes[2]))


_TRANS = ("N", "T", "C")


def _place_lu_solve(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    piv = Layout.replicated(layouts[1].shape, tiles.grid)
    b = rhs_layout(env, tiles, out_shape, _TRANS[attrs[0]])
    return (tiles, piv, b), b


def _run_lu_solve(world, ins, layout, attrs, dtype):
    a, piv, b = ins
    trans, check_finite = attrs
    if check_finite:
        finite(world, a, b)
    a, b = cast(a, dtype), cast(b, dtype)
    if world.size == 1:
        return wrapped(_alone.lu_solve(a.local, piv.local, b.local, _TRANS[trans]), layout, world)
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
    rows_match(shapes[0], shapes[1], "solve")
    return shapes[1], common(dtypes)


def _place_solve(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    b = rhs_layout(env, tiles, out_shape, "N")
    return (tiles, b), b


def _run_solve(world, ins, layout, attrs, dtype):
    a, b = ins
    assume_a, lower, check_finite = attrs
    if check_finite:
        finite(world, a, b)
    a, b = _own(a, b, dtype) if world.size == 1 else (cast(a, dtype), cast(b, dtype))
    warn_ill_conditioned(world, _solvers.solve(a, b, assume_a, lower), dtype)
    return b


def _own(a: TiledArray, b: TiledArray, dtype: np.dtype) -> tuple[TiledArray, TiledArray]:
    """Return copies on one device that a solve may overwrite, the matrix in LAPACK's order."""
    matrix = np.array(a.local, dtype, order="F")
    x = TiledArray.empty(b.layout, dtype, b.world)
    x.local[...] = b.local
    return TiledArray(a.layout.replace(order=(1, 0)), matrix, a.world), x


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
    workspace=own_copy,
    family="solve",
)

# refined_solve: attributes (assume_a, lower, check_finite, low precision); results (x, certificate)


def _infer_refined(shapes, dtypes, attrs):
    rows_match(shapes[0], shapes[1], "solve")
    return (shapes[1], (4,)), (common(dtypes), np.dtype(np.float64))


def _place_refined(env, layouts, out_shape, attrs):
    (tiles, b), out = _place_solve(env, layouts, out_shape[0], attrs)
    return (tiles, b), (out, env.replicated((4,)))


def _run_refined(world, ins, layout, attrs, dtype):
    assume_a, lower, check_finite, low = attrs
    a, b = (cast(x, dtype[0]) for x in ins)
    if check_finite:
        finite(world, a, b)
    kind = assume_a or structure(a)
    low = low and dtype[0].char in _refine.LOW
    if world.size == 1:
        b = b.copy()
    if kind in ("gen", "general", "pos", "positive definite"):
        certificate = _refine.refined_solve(a, b, kind[0] == "p", lower, low)
    elif kind in ("hermitian", "symmetric") and not assume_a and (kind == "hermitian" or dtype[0].kind == "f"):
        certificate = _refine_definite(a, b, low)
    else:
        certificate = _refine.plain_solve(a, b, kind, lower)
    warn_ill_conditioned(world, np.inf if np.isnan(certificate[3]) else certificate[3], dtype[0])
    return b, TiledArray(layout[1], certificate, world)


def _refine_definite(a, b, low):
    """Solve with a Hermitian matrix: as a positive definite one if it turns out to be one."""
    rhs = b.copy()
    if (diagonal(a).real > 0).all():
        try:
            return _refine.refined_solve(a, b, True, True, low)
        except np.linalg.LinAlgError:
            b.local[...] = rhs.local
    return _refine.plain_solve(a, b, None, True)


register(
    name="refined_solve",
    infer=_infer_refined,
    place=_place_refined,
    run=_run_refined,
    cost=lambda shapes, out_shape, attrs: _cost_factor_solve(shapes, out_shape[0], attrs),
    overwrites=(1,),
    workspace=own_copy,
    family="solve",
)

# inv: attributes (assume_a, lower, check_finite)


def _infer_inv(shapes, dtypes, attrs):
    square(shapes[0], "inv")
    return shapes[0], dtypes[0]


def _place_inv(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    return (tiles,), rhs_layout(env, tiles, out_shape, "N")


def _run_inv(world, ins, layout, attrs, dtype):
    (a,) = ins
    assume_a, lower, check_finite = attrs
    if check_finite:
        finite(world, a)
    if world.size == 1 and (assume_a == "general" or (not assume_a and structure(a) in ("general", "symmetric", "hermitian"))):
        x, rcond, info = _alone.inverse(np.array(a.local, order="F"))
        if info:
            raise agreed(np.linalg.LinAlgError(f"Matrix is singular: pivot {info} is exactly zero."))
        warn_ill_conditioned(world, rcond, dtype)
        return wrapped(x, layout, world)
    x = TiledArray.empty(layout, dtype, world)
    x.local[...] = 0
    set_diagonal(x, np.ones(x.shape[0], dtype))
    a = _own(a, x, dtype)[0] if world.size == 1 else a
    warn_ill_conditioned(world, _solvers.solve(a, x, assume_a, lower), dtype)
    return x


register(
    name="inv",
    infer=_infer_inv,
    place=_place_inv,
    run=_run_inv,
    cost=lambda shapes, out_shape, attrs: 2 * shapes[0][0] ** 3,
    overwrites=(0,),
    kept=True,
    family="solve",
)

# solve_banded: operands (ab, b), attributes (below, above, definite, lower, check_finite)


def _infer_banded(shapes, dtypes, attrs):
    ab, b = shapes
    below, above, definite = attrs[:3]
    if not definite and ab[0] != below + above + 1:
        raise ValueError(f"solve_banded: l + u + 1 = {below + above + 1} rows are needed; ab has shape {ab}")
    if ab[1] != b[0]:
        raise ValueError(f"solve_banded: a band of shape {ab} and a right-hand side of shape {b} do not match")
    return b, common(dtypes)


def _place_banded(env, layouts, out_shape, attrs):
    b = _solvers.columns_layout(out_shape, env.size)
    return (env.replicated(layouts[0].shape), b), b


def _run_banded(world, ins, layout, attrs, dtype):
    """Every rank factors the band and solves for its share of the right-hand sides."""
    ab, b = (cast(x, dtype) for x in ins)
    below, above, definite, lower, check_finite = attrs
    if check_finite:
        finite(world, ab, b)
    x, info = b.local, 0
    if b.local.size and definite:
        pbsv = _alone.routine("pbsv", ab.local)
        _, x, info = pbsv(ab.local, b.local, lower=lower)
    elif b.local.size:
        x, info = _alone.solve_band(ab.local, b.local, below, above)
    text = _solvers.not_positive(info) if definite else f"Matrix is singular: pivot {info} is exactly zero."
    agree(world, np.linalg.LinAlgError(text) if info else None)
    return wrapped(x, layout, world)


register(
    name="solve_banded",
    infer=_infer_banded,
    place=_place_banded,
    run=_run_banded,
    cost=lambda shapes, out_shape, attrs: 2 * prod(shapes[0]) * (shapes[0][0] + 2 * out_shape[-1]),
    family="solve",
)

# gathered: a small dense problem solved on one rank; attributes (name of a function below, its options)

_ON_ONE = {
    "lstsq": lambda a, b, cond, driver: sl.lstsq(a, b, cond=cond, lapack_driver=driver, check_finite=False),
    "pinv": lambda a, atol, rtol, finite: sl.pinv(a, atol=atol, rtol=rtol, return_rank=True, check_finite=finite),
    "svdvals": lambda a: sl.svdvals(a, check_finite=False),
}


def _infer_gathered(shapes, dtypes, attrs):
    (m, n), k = shapes[0], min(shapes[0])
    dtype = common(dtypes)
    real, index = np.empty(0, dtype).real.dtype, np.dtype(np.int64)
    if attrs[0] == "lstsq":
        return ((n, shapes[1][1]), shapes[1][1:], (), (k,)), (dtype, real, index, real)
    if attrs[0] == "pinv":
        return ((n, m), ()), (dtype, index)
    return ((k,),), (real,)


def _place_gathered(env, layouts, out_shape, attrs):
    return tuple(_on_first(x.shape) for x in layouts), tuple(map(_on_first, out_shape))


def _on_first(shape: tuple[int, ...]) -> Layout:
    return Layout.replicated(shape, ProcessGrid.of((1,)))


def _run_gathered(world, ins, layout, attrs, dtype):
    error, made = None, ()
    if layout[0].holds(world.rank):
        try:
            made = _ON_ONE[attrs[0]](*(x.local for x in ins), *attrs[1])
            if attrs[0] == "lstsq":
                x, sums, rank, s = made
                made = (x, sums if len(sums) else 0, rank, 0 if s is None else s)
            elif attrs[0] == "svdvals":
                made = (made,)
        except np.linalg.LinAlgError:
            error = np.linalg.LinAlgError(f"{attrs[0]}: the iteration for the singular values did not converge")
        except ValueError as e:
            error = e
    agree(world, error)
    outs = tuple(TiledArray.empty(x, d, world) for x, d in zip(layout, dtype, strict=True))
    for out, value in zip(outs, made, strict=False):
        out.local[...] = value
    return outs


register(
    name="gathered",
    infer=_infer_gathered,
    place=_place_gathered,
    run=_run_gathered,
    cost=lambda shapes, out_shape, attrs: 20 * shapes[0][0] * shapes[0][1] * min(shapes[0]),
    kept=True,
    family="factorisation",
)

# cho_solve: operands (c, b), attributes (lower, check_finite)


def _infer_cho_solve(shapes, dtypes, attrs):
    rows_match(shapes[0], shapes[1], "cho_solve")
    return shapes[1], common(dtypes)


def _place_cho_solve(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    b = rhs_layout(env, tiles, out_shape, "N")
    return (tiles, b), b


def _run_cho_solve(world, ins, layout, attrs, dtype):
    c, b = ins
    lower, check_finite = attrs
    if check_finite:
        finite(world, c, b)
    c, b = cast(c, dtype), cast(b, dtype)
    if world.size == 1:
        return wrapped(_alone.cho_solve(c.local, b.local, lower), layout, world)
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
    rows_match(shapes[0], shapes[1], "solve_triangular")
    return shapes[1], common(dtypes)


def _place_triangular(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    b = rhs_layout(env, tiles, out_shape, _TRANS[attrs[0]])
    return (tiles, b), b


def _run_triangular(world, ins, layout, attrs, dtype):
    a, b = ins
    trans, lower, unit, check_finite = attrs
    if check_finite:
        finite(world, a, b)
    zeros = np.flatnonzero(diagonal(a) == 0) if not unit else ()
    if len(zeros):
        raise agreed(np.linalg.LinAlgError(f"singular matrix: resolution failed at diagonal {zeros[0]}"))
    a, b = cast(a, dtype), cast(b, dtype)
    if world.size == 1:
        return wrapped(_alone.solve_triangle(a.local, b.local, lower, _TRANS[trans], unit), layout, world)
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
