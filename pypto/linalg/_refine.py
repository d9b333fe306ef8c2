"""Solving a system with a factorisation in half the precision, and proof that the solution is as good as the full one's.

The factors of A, scaled and rounded to single precision, are an approximate inverse M. Iterative refinement,

    r = B - A X,    X := X + M r,

with r and X in double precision, gains some digits a step as long as cond(A) is below about 1e7. It ends when the backward
error of every column, ||r|| / (||A|| ||x|| + ||b||), reaches the rounding unit of double precision. Where it gains too
little, GMRES takes the step: it solves M A d = M r and needs far less of M. Where GMRES, too, comes to nothing within its
budget, A is factored in double precision.

Source: LAPACK DSGESV; E. Carson, N. Higham, Accelerating the solution of linear systems by iterative refinement in three
precisions (2018); N. Higham, S. Pranesh, T. Zounon, Squeezing a matrix into half precision (2019) for the scaling.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pypto.linalg._condition import norm_inf, norm_one
from pypto.linalg._matmul import gemm
from pypto.linalg._solvers import LU, Cholesky, condition, solve
from pypto.tiles.tiled import TiledArray

__all__ = ["LOW", "ROUTES", "plain_solve", "refined_solve"]

#: What the second number of a certificate means.
ROUTES = ("double", "single + refinement", "single + GMRES", "double after single")
LOW = {"d": "f", "D": "F"}
#: Steps of refinement; one that gains less than a factor GAIN is the last.
STEPS, GAIN = 10, 4.0
#: GMRES: vectors of one cycle, cycles, right-hand sides at most, and the reduction of the residual that a cycle aims at.
VECTORS, CYCLES, COLUMNS, AIM = 20, 3, 4, 1e-6


def refined_solve(a: TiledArray, b: TiledArray, positive: bool, lower: bool, low: bool = True) -> np.ndarray:
    """B := A^-1 B for a general or positive definite A, which is left as it is. Collective over the world.

    Cost: half of a factorisation in double precision and 4 n^2 flops per step and right-hand side. Memory: A in single
    precision; after a failure that is freed, and a copy of A made.

    Returns
    -------
    certificate : float64 array
        Backward error, index into ROUTES, steps of refinement, reciprocal condition (NaN where it was not estimated).
    """
    rhs = b.copy()
    residual = _Residual(a, rhs)
    route, steps = 0, 0
    if low:
        steps, route = _low_precision(a, b, rhs, residual, positive, lower)
        if route:
            return np.array([residual.error, route, steps, np.nan])
        route = 3
    work = a.copy()
    norm = norm_one(work)
    factor = Cholesky(work, lower) if positive else LU(work)
    b.local[...] = rhs.local
    factor.solve(b)
    rcond = condition(factor, work, norm)
    residual(b)
    return np.array([residual.error, route, steps, rcond])


def plain_solve(a: TiledArray, b: TiledArray, kind: str | None, lower: bool) -> np.ndarray:
    """B := A^-1 B by the algorithm for matrices of that kind; return the certificate, as :func:`refined_solve` does."""
    rhs = b.copy()
    rcond = solve(a.copy(), b, kind, lower)
    residual = _Residual(a, rhs)
    residual(b)
    return np.array([residual.error, 0, 0, rcond])


def _low_precision(a, b, rhs, residual: "_Residual", positive: bool, lower: bool) -> tuple[int, int]:
    """B := A^-1 B by low precision; return the steps and the route, 0 where it did not work."""
    world = a.world
    cuts = [slice(j, j + 64) for j in range(0, a.local.shape[1], 64)]
    top = np.array([max((float(np.abs(a.local[:, cut]).max(initial=0)) for cut in cuts), default=0.0)])
    world.comm.allreduce(top, "max")
    if not np.isfinite(top[0]) or top[0] == 0:
        return 0, 0
    scale = 2.0 ** -np.floor(np.log2(top[0]))  # exact, and keeps what follows within the range of single precision
    work = TiledArray.empty(a.layout, np.dtype(LOW[a.dtype.char]), world)
    for cut in cuts:
        work.local[:, cut] = a.local[:, cut] * scale
    try:
        factor = Cholesky(work, lower) if positive else LU(work)
    except np.linalg.LinAlgError:  # in single precision; the same on every rank
        return 0, 0

    def inverse(r: TiledArray) -> TiledArray:
        return _solve_low(factor, r, scale)

    b.local[...] = 0
    target = np.finfo(a.dtype).eps
    r, steps, route = rhs, 0, 1
    best = np.inf
    while steps < STEPS:
        d = inverse(r)
        candidate = TiledArray(b.layout, b.local + d.local, world)
        r = residual(candidate)
        steps += 1
        if not residual.error < best:
            break
        gained = best / residual.error if residual.error else np.inf
        b.local[...] = candidate.local
        best = residual.error
        if best <= target or (gained < GAIN and best <= 8 * target):
            residual.error = best
            return steps, route
        if gained < GAIN and steps > 1:
            break
    if b.shape[1] > COLUMNS or (positive and best > 1e-4):
        return steps, 0
    for _ in range(CYCLES):
        r = residual(b)
        if residual.error <= 4 * target:
            return steps, 2
        d, made = _gmres(a, r, inverse)
        candidate = TiledArray(b.layout, b.local + d.local, world)
        residual(candidate)
        steps += made
        if not residual.error < 0.1 * best and not residual.error <= 4 * target:
            return steps, 0
        best = residual.error
        b.local[...] = candidate.local
    residual(b)
    return steps, 2 if residual.error <= 8 * target else 0


class _Residual:
    """B - A X, and the largest backward error ||B - A X|| / (||A|| ||X|| + ||B||) of a column in the infinity norm."""

    def __init__(self, a: TiledArray, b: TiledArray) -> None:
        self.a, self.b = a, b
        self.norm = norm_inf(a)
        self.tops = _tops(b)
        self.error = np.inf

    def __call__(self, x: TiledArray) -> TiledArray:
        """Return the residual, noting the backward error."""
        r = gemm(self.a, x, self.b.layout)
        np.subtract(self.b.local, r.local, out=r.local)
        with np.errstate(all="ignore"):
            scale = self.norm * _tops(x) + self.tops
            ratio = _tops(r) / np.where(scale > 0, scale, 1)
        self.error = float(np.where(np.isnan(ratio), np.inf, ratio).max(initial=0.0))
        return r


def _tops(x: TiledArray) -> np.ndarray:
    """Return the largest |x_ij| of every column, on every rank."""
    tops = np.zeros(x.shape[1])
    if x.local.size:
        tops[x.layout.indices(1, x.world.rank)] = np.abs(x.local).max(0)
    x.world.comm.allreduce(tops, "max")
    return tops


def _solve_low(factor: Any, r: TiledArray, scale: float) -> TiledArray:
    """Return M r: every column is scaled to about one, solved for in single precision and scaled back."""
    tops = _tops(r)
    with np.errstate(all="ignore"):
        size = np.where((tops > 0) & np.isfinite(tops), 2.0 ** np.floor(np.log2(np.where(tops > 0, tops, 1))), 1.0)
    mine = size[r.layout.indices(1, r.world.rank)]
    low = TiledArray.empty(r.layout, np.dtype(LOW[r.dtype.char]), r.world)
    low.local[...] = r.local / mine
    factor.solve(low)
    out = TiledArray.empty(r.layout, r.dtype, r.world)
    out.local[...] = low.local
    out.local *= scale * mine
    return out


def _gmres(a: TiledArray, r: TiledArray, inverse: Callable[[TiledArray], TiledArray]) -> tuple[TiledArray, int]:
    """Return d with M A d = M r to a factor AIM, column by column, and the number of products with A."""
    d = TiledArray.empty(r.layout, r.dtype, r.world)
    d.local[...] = 0
    made = 0
    for j in range(r.shape[1]):
        made += _gmres_column(a, r, inverse, d, j)
    return d, made


def _gmres_column(a: TiledArray, r: TiledArray, inverse, d: TiledArray, j: int) -> int:
    """GMRES on one column, by modified Gram-Schmidt; the vectors keep the layout of the right-hand sides."""
    world = r.world
    here = r.layout.indices(1, world.rank) == j

    def only(x: np.ndarray) -> TiledArray:
        return TiledArray(r.layout, np.asfortranarray(np.where(here, x, 0)), world)

    def dot(x: TiledArray, y: TiledArray):
        value = np.array([np.vdot(x.local, y.local)])
        world.comm.allreduce(value)
        return value[0]

    v = inverse(only(r.local))
    beta = np.sqrt(dot(v, v).real)
    if beta == 0 or not np.isfinite(beta):
        return 0
    v.local /= beta
    basis = [v]
    h = np.zeros((VECTORS + 1, VECTORS), r.dtype)
    rhs = np.zeros(VECTORS + 1, r.dtype)
    rhs[0] = beta
    y = np.zeros(0, r.dtype)
    for k in range(VECTORS):
        w = inverse(gemm(a, basis[k], r.layout))
        for i, q in enumerate(basis):
            h[i, k] = dot(q, w)
            w.local -= h[i, k] * q.local
        h[k + 1, k] = np.sqrt(dot(w, w).real)
        y, *_ = np.linalg.lstsq(h[: k + 2, : k + 1], rhs[: k + 2], rcond=None)
        left = np.linalg.norm(rhs[: k + 2] - h[: k + 2, : k + 1] @ y)
        if left <= AIM * beta or h[k + 1, k] == 0 or not np.isfinite(left):
            break
        w.local /= h[k + 1, k]
        basis.append(w)
    for q, weight in zip(basis, y, strict=False):
        d.local += weight * q.local
    return len(y)
