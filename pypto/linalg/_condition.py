"""Norms of a distributed matrix, and the estimate of its condition from a factorisation.

Source: N. Higham, FORTRAN codes for estimating the one-norm of a real or complex matrix (1988); LAPACK xLACN2, xGECON.
"""

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgWarning

from pypto.linalg._alone import norm_one as norm_one_alone
from pypto.linalg._lines import diagonal
from pypto.tiles.tiled import TiledArray, World

__all__ = ["norm_inf", "norm_one", "reciprocal_condition", "warn_ill_conditioned"]

#: Bytes of a piece of the local part that is measured at a time.
PIECE = 1 << 22


def _pieces(local: np.ndarray):
    """Yield slices of local columns of about PIECE bytes."""
    columns = max(1, PIECE // max(local.itemsize * local.shape[0], 1))
    for j in range(0, local.shape[1], columns):
        yield slice(j, min(j + columns, local.shape[1]))


def _sums(a: TiledArray, uplo: str | None, unit: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of |a_ij| over the columns and over the rows, of the whole matrix or of one triangle; on every rank."""
    m, n = a.shape
    both = np.zeros(m + n, np.empty(0, a.dtype).real.dtype)
    over_rows, over_columns = both[:n], both[n:]
    if a.layout.holds(a.world.rank):
        i, j = (a.layout.indices(k, a.world.rank) for k in (0, 1))
        for cut in _pieces(a.local):
            size = np.abs(a.local[:, cut])
            if uplo:
                inside = i[:, np.newaxis] >= j[cut] if uplo == "L" else i[:, np.newaxis] <= j[cut]
                if unit:
                    inside &= i[:, np.newaxis] != j[cut]
                size = np.where(inside, size, 0)
            over_rows[j[cut]] += size.sum(0)
            over_columns[i] += size.sum(1)
    a.world.comm.allreduce(both)
    if unit:
        both += 1
    return over_rows, over_columns


def norm_one(a: TiledArray, uplo: str | None = None, unit: bool = False, symmetric: bool = False) -> float:
    """Return the one-norm of a matrix, of its named triangle, or of the symmetric matrix which that triangle stands for.

    Collective over the world. Cost: one pass over the local part and one reduction of m + n numbers.
    """
    if a.world.size == 1 and uplo is None and a.local.size:
        return norm_one_alone(a.local)
    over_rows, over_columns = _sums(a, uplo, unit)
    if symmetric:
        over_rows = over_rows + over_columns - np.abs(diagonal(a))
    return float(over_rows.max(initial=0.0))


def norm_inf(a: TiledArray) -> float:
    """Return the largest sum of |a_ij| over a row. Collective over the world."""
    return float(_sums(a, None, False)[1].max(initial=0.0))


def reciprocal_condition(
    norm: float, n: int, dtype: np.dtype, solve: Callable[[np.ndarray], np.ndarray], solve_h: Callable[[np.ndarray], np.ndarray]
) -> float:
    """Return an estimate of 1 / (||A||_1 ||A^-1||_1), from above, given x -> A^-1 x and x -> A^-H x on whole vectors.

    Cost: four or five solves.
    """
    if n == 0:
        return 1.0
    with np.errstate(all="ignore"):
        inverse = _inverse_norm(n, dtype, solve, solve_h)
        product = norm * inverse
        return float(1 / product) if np.isfinite(product) and product > 0 else (np.nan if np.isnan(product) else 0.0)


def _inverse_norm(n: int, dtype: np.dtype, solve, solve_h) -> float:
    y = solve(np.full(n, 1 / n, dtype))
    estimate = np.abs(y).sum()
    if n == 1:
        return float(estimate)
    signs, last = _signs(y), -1
    for _ in range(4):
        z = solve_h(signs)
        j = int(np.abs(z).argmax())
        if j == last:
            break
        last = j
        x = np.zeros(n, dtype)
        x[j] = 1
        y = solve(x)
        before, estimate = estimate, np.abs(y).sum()
        now = _signs(y)
        if not estimate > before or (dtype.kind == "f" and np.array_equal(now, signs)):
            estimate = max(estimate, before)
            break
        signs = now
    alternating = (np.where(np.arange(n) % 2, -1, 1) * (1 + np.arange(n) / (n - 1))).astype(dtype)
    return float(np.fmax(estimate, 2 * np.abs(solve(alternating)).sum() / (3 * n)))


def _signs(y: np.ndarray) -> np.ndarray:
    size = np.abs(y)
    return np.where(size > 0, y / np.where(size > 0, size, 1), 1).astype(y.dtype)


def warn_ill_conditioned(world: World, rcond: float, dtype: np.dtype) -> None:
    """Warn as SciPy does where the condition exceeds the reciprocal of the rounding unit."""
    if not rcond >= np.finfo(dtype).eps:
        text = f"Ill-conditioned matrix (rcond={rcond:.6g}): result may not be accurate."
        world.incidents.warn(LinAlgWarning, text)
