"""The rows of the operator table for factorisations: LU, Cholesky, QR, LDL^T, and what is read off them."""

from math import prod

import numpy as np
import scipy.linalg as sl

from pypto.layout.grid import ProcessGrid
from pypto.layout.layout import Cyclic, Layout
from pypto.linalg import _alone, _cholesky, _ldl, _lu, _qr, _qr_pivoted
from pypto.linalg._lines import diagonal, set_diagonal
from pypto.linalg._rows import cast, common, finite, one_device, own_copy, square, square_tiles, wrapped
from pypto.linalg._solvers import not_positive
from pypto.linalg._tiled import Tiles, exchange_rows
from pypto.linalg._tsqr import tsqr
from pypto.ops.opdef import Env, register, table
from pypto.tiles.redistribute import redistribute, start
from pypto.tiles.status import agreed
from pypto.tiles.tiled import TiledArray, World

__all__ = ["is_tall"]

_ALONE = ProcessGrid.of((1,))


# lu_factor: attributes (check_finite, pivoting); results (lu, piv)


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
        finite(world, a)
    if world.size == 1:
        lu, piv, info = _alone.lu(np.array(a.local, order="F"))
        a = wrapped(lu, layout[0], world)
    else:
        piv, info = _lu.getrf(a, attrs[1])
    if info:
        world.incidents.warn(sl.LinAlgWarning, f"Diagonal number {info} is exactly zero. Singular matrix.")
    return a, _stored_piv(piv, layout[1], world)


def _stored_piv(piv, layout: Layout, world: World) -> TiledArray:
    out = TiledArray.empty(layout, np.dtype(np.int32), world)
    if layout.holds(world.rank):
        out.local[...] = piv
    return out


def _cost_lu(shapes, out_shape, attrs) -> int:
    m, n = max(shapes[0]), min(shapes[0])
    return m * n * n - n**3 // 3


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

# cholesky: attributes (lower, clean, check_finite)


def _infer_cholesky(shapes, dtypes, attrs):
    square(shapes[0], "cholesky")
    return shapes[0], dtypes[0]


def _place_cholesky(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    return (tiles,), tiles


def _run_cholesky(world, ins, layout, attrs, dtype):
    (a,) = ins
    lower, clean, check_finite = attrs
    if check_finite:
        finite(world, a)
    if world.size == 1:
        made, info = _alone.cholesky(np.array(a.local, order="F"), lower, clean)
    else:
        info = _cholesky.potrf(a, lower)
    if info:
        raise agreed(np.linalg.LinAlgError(not_positive(info)))
    if world.size == 1:
        return wrapped(made, layout, world)
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

# qr: attributes (mode, pivoting, check_finite); results by mode: r -> (R,) with all rows, triangle -> (R,) with those of
# the triangle, raw -> (qr, tau, R), else (Q, R); then jpvt

_LONG = 4


def is_tall(shape: tuple[int, ...], size: int) -> bool:
    """Return whether every rank's share of the rows alone is so much taller than wide that a tree over the ranks pays.

    The tree moves 2 n^2 log2(P) elements a rank, the algorithm on tiles about n m / sqrt(P).
    """
    m, n = shape
    return size > 1 and n > 0 and m >= _LONG * size * n


def _tall_layout(env: Env, shape: tuple[int, ...]) -> Layout:
    return Layout(shape, env.everyone(), (Cyclic(0, max(1, -(-shape[0] // env.size))), None))


def _infer_qr(shapes, dtypes, attrs):
    (m, n), dtype = shapes[0], dtypes[0]
    k = min(m, n)
    mode, pivoting, _ = attrs
    r = (k, n) if mode in ("economic", "raw", "triangle") else (m, n)
    out = {"r": [r], "triangle": [r], "raw": [(m, n), (k,), r], "economic": [(m, k), r], "full": [(m, m), r]}[mode]
    kinds = [dtype] * len(out)
    return (tuple([*out, (n,)] if pivoting else out), tuple([*kinds, np.dtype(np.int32)] if pivoting else kinds))


def _place_qr(env, layouts, out_shape, attrs):
    mode, pivoting, _ = attrs
    shape = layouts[0].shape
    if is_tall(shape, env.size) and mode in ("r", "triangle", "economic") and not pivoting:
        tall = _tall_layout(env, shape)
        r = env.layout(out_shape[-1])
        return (tall,), (tall, r) if mode == "economic" else (r,)
    tiles = square_tiles(env, layouts[0])

    def like(shape):
        return tiles.replace(shape=shape) if len(shape) == 2 else Layout.replicated(shape, tiles.grid)

    return (tiles,), tuple(map(like, out_shape))


def _run_qr(world, ins, layout, attrs, dtype):
    (a,) = ins
    mode, pivoting, check_finite = attrs
    if check_finite:
        finite(world, a)
    if world.size == 1:
        as_scipy = "raw" if mode == "triangle" else mode
        made = one_device(lambda: sl.qr(a.local, mode=as_scipy, pivoting=pivoting, check_finite=False), "qr")
        made = (*made[0], *made[1:]) if as_scipy == "raw" else made if isinstance(made, tuple) else (made,)
        made = made[2:] if mode == "triangle" else made
        return tuple(wrapped(np.asarray(x), y, world) for x, y in zip(made, layout, strict=True))
    if a.layout.dims[1] is None:
        return _tall_qr(world, a, layout, mode)
    if pivoting:
        tau, jpvt = _qr_pivoted.geqp3(a)
        factors = _qr.block_factors(a, tau) if mode in ("economic", "full") else None
    else:
        factors = _qr.geqrf(a)
        tau = _taus(factors)
    outs = []
    if mode == "raw":
        outs += [a, _replicated(tau, layout[1], dtype[1], world)]
    elif mode not in ("r", "triangle"):
        q = TiledArray.empty(layout[0], dtype[0], world)
        q.local[...] = 0
        set_diagonal(q, np.ones(min(q.shape), dtype[0]))
        _qr.multiply_q(a, factors, q, "N", grow=True)
        outs.append(q)
    outs.append(_upper(world, a, layout[len(outs)]))
    if pivoting:
        outs.append(_replicated(jpvt, layout[-1], np.dtype(np.int32), world))
    return tuple(outs)


def _tall_qr(world, a, layout, mode):
    """QR of a tall matrix in blocks of rows by a tree over the ranks; R begins on rank 0."""
    n = a.shape[1]
    rows = [a.layout.local_shape(r)[0] for r in range(world.size)]
    r = tsqr(world.device, world.comm, a.local, rows, 0, form=mode == "economic")
    first = Layout.replicated((n, n), _ALONE, (1, 0))
    r = TiledArray(first, np.asfortranarray(r) if r is not None else np.empty((0, 0), a.dtype, order="F"), world)
    if layout[-1].shape != (n, n):  # mode "r" asks for all rows, zeros below
        whole = TiledArray.empty(layout[-1], a.dtype, world)
        whole.local[...] = 0
        start(r, whole, ((n, 0, 1, 0, 1), (n, 0, 1, 0, 1))).wait()
        r = whole
    else:
        r = redistribute(r, layout[-1])
    return (a, r) if mode == "economic" else (r,)


def _taus(factors):
    """Return the factors of the reflections from the diagonals of the T side by side."""
    j = np.arange(factors.shape[1])
    return factors[j % max(len(factors), 1), j] if len(factors) else factors.reshape(-1)


def _upper(world, a, layout):
    """Return the upper triangle of the first rows of a factored matrix."""
    rows = layout.local_shape(world.rank)[0]
    top = TiledArray(a.layout.replace(shape=layout.shape), a.local[:rows], world)
    return table["triu"].run(world, [top], layout, (0,), a.dtype)


def _replicated(value, layout: Layout, dtype: np.dtype, world: World) -> TiledArray:
    out = TiledArray.empty(layout, dtype, world)
    if layout.holds(world.rank):
        out.local[...] = value
    return out


def _cost_qr(shapes, out_shape, attrs) -> int:
    m, n = max(shapes[0]), min(shapes[0])
    one = 2 * m * n * n - 2 * n**3 // 3
    return one if attrs[0] in ("r", "raw", "triangle") else 2 * one if attrs[0] == "economic" else one + 4 * m * m * n


register(
    name="qr",
    infer=_infer_qr,
    place=_place_qr,
    run=_run_qr,
    cost=_cost_qr,
    overwrites=(0,),
    workspace=own_copy,
    kept=True,
    family="factorisation",
)

# apply_q: operands (qr, tau, c) with qr and tau as from mode "raw", c of as many rows; attributes (trans,): Q C or Q^H C


def _infer_apply_q(shapes, dtypes, attrs):
    if shapes[2][0] != shapes[0][0]:
        raise ValueError(f"Q of order {shapes[0][0]} and a matrix of shape {shapes[2]} do not match")
    return shapes[2], common((dtypes[0], dtypes[2]))


def _place_apply_q(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    if env.size == 1:
        return tuple(env.layout(x.shape) for x in layouts), env.layout(out_shape)
    rows, cols = tiles.dims
    q = tiles.grid.shape[cols.axis]
    c = Layout(out_shape, tiles.grid, (rows, Cyclic(cols.axis, max(1, min(rows.nb, -(-out_shape[1] // q))))))
    return (tiles, Layout.replicated(layouts[1].shape, tiles.grid), c), c


def _run_apply_q(world, ins, layout, attrs, dtype):
    a, tau, c = (cast(x, dtype) for x in ins)
    (trans,) = attrs
    if world.size == 1:
        if 0 in c.shape or 0 in tau.shape:
            return c.copy()
        multiply = _alone.routine("ormqr" if dtype.kind == "f" else "unmqr", a.local)
        op = "N" if trans == "N" else "T" if dtype.kind == "f" else "C"
        v = a.local[:, : len(tau.local)]
        work = multiply("L", op, v, tau.local, c.local, -1)[1]
        return wrapped(multiply("L", op, v, tau.local, c.local, int(work[0].real))[0], layout, world)
    if a.shape[1] > len(tau.local) and a.layout.holds(world.rank):  # a wide matrix: its first columns hold the vectors
        narrow = a.layout.replace(shape=(a.shape[0], tau.shape[0]))
        a = TiledArray(narrow, a.local[:, : narrow.local_shape(world.rank)[1]], world)
    _qr.multiply_q(a, _qr.block_factors(a, tau.local), c, trans)
    return c


register(
    name="apply_q",
    infer=_infer_apply_q,
    place=_place_apply_q,
    run=_run_apply_q,
    cost=lambda shapes, out_shape, attrs: 4 * prod(out_shape) * shapes[1][0],
    overwrites=(2,),
    family="solve",
)

# ldl: attributes (hermitian, check_finite), of the lower triangle; results (L with its rows permuted back, D, perm)


def _infer_ldl(shapes, dtypes, attrs):
    square(shapes[0], "ldl")
    return (shapes[0], shapes[0], shapes[0][:1]), (dtypes[0], dtypes[0], np.dtype(np.int64))


def _place_ldl(env, layouts, out_shape, attrs):
    tiles = square_tiles(env, layouts[0])
    return (tiles,), (tiles, tiles, Layout.replicated(out_shape[2], tiles.grid))


def _run_ldl(world, ins, layout, attrs, dtype):
    (a,) = ins
    hermitian, check_finite = attrs
    if check_finite:
        finite(world, a)
    if world.size == 1:
        made = one_device(lambda: sl.ldl(a.local, lower=True, hermitian=hermitian, check_finite=False), "ldl")
        return tuple(wrapped(x.astype(d, copy=False), y, world) for x, y, d in zip(made, layout, dtype, strict=True))
    made = _ldl.sytrf(a, hermitian)
    d = TiledArray.empty(layout[1], dtype[1], world)
    d.local[...] = 0
    set_diagonal(d, made.d)
    if len(made.e):
        set_diagonal(d, made.e, -1)
        set_diagonal(d, made.e.conj() if hermitian else made.e, 1)
    low = table["tril"].run(world, [a], layout[0], (-1,), dtype[0])
    if low.layout.holds(world.rank):
        set_diagonal(low, np.ones(len(made.perm), dtype[0]))
        moved = np.flatnonzero(made.perm != np.arange(len(made.perm)))
        exchange_rows(Tiles(low), low.local, moved, np.ascontiguousarray(made.perm[moved]))
    return low, d, _replicated(made.perm, layout[2], np.dtype(np.int64), world)


register(
    name="ldl",
    infer=_infer_ldl,
    place=_place_ldl,
    run=_run_ldl,
    cost=lambda shapes, out_shape, attrs: shapes[0][0] ** 3 // 3,
    overwrites=(0,),
    kept=True,
    family="factorisation",
)

# determinant: attributes (check_finite,); results (det in double precision, its sign, log of its absolute value)


def _infer_determinant(shapes, dtypes, attrs):
    square(shapes[0], "det")
    wide = np.dtype(np.complex128 if dtypes[0].kind == "c" else np.float64)
    return ((), (), ()), (wide, dtypes[0], np.empty(0, dtypes[0]).real.dtype)


def _place_determinant(env, layouts, out_shape, attrs):
    return (square_tiles(env, layouts[0]),), (env.replicated(()),) * 3


def _run_determinant(world, ins, layout, attrs, dtype):
    (a,) = ins
    if attrs[0]:
        finite(world, a)
    if world.size == 1:
        lu, piv, _ = _alone.lu(np.array(a.local, order="F"))
        d = np.diag(lu)
    else:
        piv, _ = _lu.getrf(a)
        d = diagonal(a)
    swaps = np.array([np.count_nonzero(piv != np.arange(len(piv)))])
    world.comm.allreduce(swaps, "max")  # a rank outside the grid has no pivots
    odd = swaps[0] % 2
    with np.errstate(all="ignore"):
        det = np.prod(d, dtype=dtype[0]) * (-1 if odd else 1)
        size = np.abs(d)
        sign = np.prod(d / np.where(size > 0, size, 1)) * (-1 if odd else 1)
        logarithm = np.log(size).sum()
    return tuple(_replicated(v, y, t, world) for v, y, t in zip((det, sign, logarithm), layout, dtype, strict=True))


register(
    name="determinant",
    infer=_infer_determinant,
    place=_place_determinant,
    run=_run_determinant,
    cost=_cost_lu,
    overwrites=(0,),
    family="factorisation",
)
