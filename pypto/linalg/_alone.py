"""Factorisations and solves of one device: LAPACK on the local part.

Operands may lie in either order and are overwritten only where the name of the argument says so.
"""

from typing import Any

import numpy as np
from scipy.linalg import lapack

__all__ = [
    "cho_solve",
    "cholesky",
    "inverse",
    "lu",
    "lu_solve",
    "norm_one",
    "routine",
    "solve_band",
    "solve_indefinite",
    "solve_triangle",
]

_PREFIX = {"f": "s", "d": "d", "F": "c", "D": "z"}


def routine(stem: str, a: np.ndarray) -> Any:
    """Return LAPACK's routine of that name for arrays of one type."""
    return getattr(lapack, _PREFIX[a.dtype.char] + stem)


def lu(work: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Factor A = P L U; return the factors (in `work` if it is in F order), the interchanges and info."""
    if work.size == 0:
        return work, np.arange(min(work.shape), dtype=np.int32), 0
    getrf = routine("getrf", work)
    factors, piv, info = getrf(work, overwrite_a=True)
    return factors, piv.astype(np.int32, copy=False), info


def cholesky(work: np.ndarray, lower: bool, clean: bool) -> tuple[np.ndarray, int]:
    """Factor A = L L^H or U^H U; return the factor and info."""
    if work.size == 0:
        return work, 0
    potrf = routine("potrf", work)
    return potrf(work, lower=lower, clean=clean, overwrite_a=True)


def lu_solve(factors: np.ndarray, piv: np.ndarray, b: np.ndarray, trans: str) -> np.ndarray:
    """Solve op(A) X = B from the factors of A."""
    if b.size == 0:
        return b
    return routine("getrs", factors)(factors, piv, b, trans="NTC".index(trans))[0]


def cho_solve(factor: np.ndarray, b: np.ndarray, lower: bool) -> np.ndarray:
    """Solve A X = B from the Cholesky factor of A."""
    if b.size == 0:
        return b
    return routine("potrs", factor)(factor, b, lower=lower)[0]


def norm_one(a: np.ndarray) -> float:
    """Return the one-norm of a matrix that is not empty."""
    return float(routine("lange", a)("1", a) if a.flags.f_contiguous else np.abs(a).sum(0).max())


def solve_indefinite(a: np.ndarray, b: np.ndarray, lower: bool, hermitian: bool, norm: float) -> tuple[np.ndarray, float, int]:
    """Solve with a symmetric or Hermitian matrix by its named triangle; return X, an estimate of 1/condition, and info."""
    stem = "he" if hermitian and a.dtype.kind == "c" else "sy"
    sv, sv_lwork, con = (routine(stem + end, a) for end in ("sv", "sv_lwork", "con"))
    work, _ = sv_lwork(len(a), lower=lower)
    factors, piv, x, info = sv(a, b, lower=lower, lwork=int(work.real))
    if info:
        return x, 0.0, info
    return x, float(con(factors, piv, norm, lower=lower)[0]), 0


def solve_triangle(a: np.ndarray, b: np.ndarray, lower: bool, trans: str, unit: bool = False) -> np.ndarray:
    """Solve with a triangle whose diagonal holds no zero."""
    if b.size == 0:
        return b
    trtrs = routine("trtrs", a)
    code = "NTC".index(trans)
    if not a.flags.f_contiguous and code < 2:  # read the transpose, which is in F order
        return trtrs(a.T, b, lower=not lower, trans=1 - code, unitdiag=unit)[0]
    return trtrs(a, b, lower=lower, trans=code, unitdiag=unit)[0]


def solve_band(ab: np.ndarray, b: np.ndarray, below: int, above: int) -> tuple[np.ndarray, int]:
    """Solve with a general band in diagonal storage; return X and info."""
    gbsv = routine("gbsv", ab)
    work = np.zeros((2 * below + above + 1, ab.shape[1]), ab.dtype, order="F")
    work[below:] = ab
    _, _, x, info = gbsv(below, above, work, b, overwrite_ab=True)
    return x, info


def inverse(work: np.ndarray) -> tuple[np.ndarray, float, int]:
    """Return the inverse of a general matrix, an estimate of 1/condition, and info."""
    if work.size == 0:
        return work, 1.0, 0
    getri, getri_lwork, gecon = (routine(stem, work) for stem in ("getri", "getri_lwork", "gecon"))
    norm = norm_one(work)
    factors, piv, info = lu(work)
    if info:
        return factors, 0.0, info
    rcond = float(gecon(factors, norm)[0])
    size, _ = getri_lwork(len(work))
    return getri(factors, piv, lwork=int(size.real * 1.01), overwrite_lu=True)[0], rcond, 0
