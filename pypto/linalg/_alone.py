"""The solve of one device: LAPACK on the local part, with SciPy's answers, exceptions and warnings."""

import warnings

import numpy as np
import scipy.linalg as sl
from scipy.linalg import lapack

__all__ = ["inv", "solve"]


def solve(a: np.ndarray, b: np.ndarray, assume_a: str | None, lower: bool) -> np.ndarray:
    """Solve A X = B; neither operand changes.

    A matrix that is plainly general goes straight to its factorisation. One that may have a structure goes to SciPy,
    which looks for it.
    """
    if 0 in b.shape or not (assume_a in ("gen", "general") or (assume_a is None and _plainly_general(a))):
        return sl.solve(a, b, lower=lower, assume_a=assume_a, check_finite=False)
    getrf, getrs, gecon, lange = lapack.get_lapack_funcs(("getrf", "getrs", "gecon", "lange"), (a, b))
    work = a.astype(getrf.dtype, order="F", copy=True)
    norm = lange("1", work)
    lu, pivots, info = getrf(work, overwrite_a=True)
    if info > 0:
        raise np.linalg.LinAlgError(f"Matrix is singular: pivot {info} is exactly zero.")
    x, _ = getrs(lu, pivots, b)
    rcond, _ = gecon(lu, norm)
    if rcond < np.finfo(lu.dtype).eps:
        text = f"Ill-conditioned matrix (rcond={rcond:.6g}): result may not be accurate."
        warnings.warn(text, sl.LinAlgWarning, stacklevel=2)
    return x


def inv(a: np.ndarray, assume_a: str | None, lower: bool) -> np.ndarray:
    """Return the inverse of A."""
    if assume_a is None:
        return sl.inv(a, check_finite=False)
    return sl.solve(a, np.eye(len(a), dtype=a.dtype), assume_a=assume_a, lower=lower, check_finite=False)


def _plainly_general(a: np.ndarray) -> bool:
    """Return whether the corners rule out a band or triangle, and the first row and column any symmetry."""
    if len(a) < 3 or a[-1, 0] == 0 or a[0, -1] == 0:
        return False
    row, column = a[0, 1:], a[1:, 0]
    return bool((row != column).any() and (row != column.conj()).any())
