"""Solving: systems by what is known of their matrices, from factors, by bands; inverses."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pypto.array.array import Array, as_array, results
from pypto.array.creation import zeros
from pypto.array.manipulation import expand_dims, squeeze
from pypto.config import settings
from pypto.linalg._common import inexact, matrix, row, square, verified, with_rhs
from pypto.linalg._refine import ROUTES

__all__ = [
    "Refinement",
    "cho_solve",
    "inv",
    "lu_solve",
    "refine",
    "solve",
    "solve_banded",
    "solve_triangular",
    "solveh_banded",
]

_SHORT = {"gen": "general", "sym": "symmetric", "her": "hermitian", "pos": "positive definite"}
_ASSUME = (
    "diagonal",
    "tridiagonal",
    "banded",
    "upper triangular",
    "lower triangular",
    *_SHORT,
    *_SHORT.values(),
)
#: Order from which a factorisation in single precision pays for its refinement, and the most right-hand sides per row.
LEAST_MIXED, MOST_COLUMNS = 1000, 1 / 32


def lu_solve(
    lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """Solve ``A x = b`` (`trans` 0), ``A^T x = b`` (1) or ``A^H x = b`` (2) from :func:`lu_factor`'s result.

    Parameters
    ----------
    lu_and_piv : tuple
    b : (..., N) or (..., N, K) array_like
    trans : {0, 1, 2}
    overwrite_b : bool
        Accepted; operands never change.
    check_finite : bool

    Returns
    -------
    Array
        In the shape of `b`.

    Raises
    ------
    ValueError
        Shapes that do not match, or another `trans`.

    Notes
    -----
    Cost: 2 N^2 K flops. Source: LAPACK xGETRS.

    Examples
    --------
    >>> import pypto
    >>> factors = pypto.linalg.lu_factor(pypto.asarray([[2.0, 0.0], [0.0, 4.0]]))
    >>> pypto.linalg.lu_solve(factors, pypto.ones(2)).tolist()
    [0.5, 0.25]
    """
    if trans not in (0, 1, 2):
        raise ValueError(f"trans={trans!r} is not allowed; give 0 (A), 1 (A^T) or 2 (A^H)")
    lu_, piv = lu_and_piv
    return with_rhs("lu_solve", (square(lu_, "lu_solve"), as_array(piv)), (2, 1), b, (int(trans), bool(check_finite)))


def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str | None = None,
    transposed: bool = False,
    *,
    verify: bool | None = None,
) -> Array:
    """Solve ``A x = b``, or ``A^T x = b``, for a square matrix.

    Parameters
    ----------
    a : (..., N, N) array_like
    b : (..., N) or (..., N, K) array_like
    lower : bool
        Which triangle holds a symmetric, Hermitian or positive definite matrix; the other is not read.
    overwrite_a, overwrite_b : bool
        Accepted; operands never change.
    check_finite : bool
        Whether Inf and NaN are an error.
    assume_a : str, optional
        What is known of the matrix, by SciPy's words: ``"gen"``, ``"sym"``, ``"her"``, ``"pos"``, ``"upper triangular"``,
        ``"lower triangular"``, ``"diagonal"``, ``"tridiagonal"``, ``"banded"`` and their long forms. Without it the matrix is
        looked at: a band, a triangle, or symmetry is made use of.
    transposed : bool
        Solve with the transpose; real matrices only, as in SciPy.
    verify : bool, optional
        Compare the result with the operands on a random vector when it is computed (default: ``config(verify=...)``).

    Returns
    -------
    Array
        In the shape of `b`.

    Raises
    ------
    LinAlgError
        The matrix is singular, or not positive definite where that was promised: on every rank, with the pivot.
    ValueError
        Shapes that do not match; Inf or NaN with `check_finite`; an unknown `assume_a`.

    Warns
    -----
    LinAlgWarning
        The estimated condition exceeds the reciprocal of the rounding unit.

    See Also
    --------
    refine : the same with a certificate of the result.

    Notes
    -----
    Cost: 2/3 N^3 flops (1/3 N^3 for a symmetric matrix) and 2 N^2 K for the right-hand sides, over all ranks; memory: the
    operands and one copy of A. Under ``config(mixed_precision=True)``, the default, a large double precision system is
    factored in single precision and refined to double precision's backward error, or factored again in double precision
    where that is out of reach. Source: LAPACK xGESV, xPOSV, xSYTRF, DSGESV.

    Examples
    --------
    >>> import pypto
    >>> pypto.linalg.solve(pypto.asarray([[2.0, 0.0], [1.0, 4.0]]), pypto.asarray([2.0, 9.0])).tolist()
    [1.0, 2.0]
    """
    a, b, assume_a, lower = _system(a, b, assume_a, lower, transposed)
    if a.shape[-2:] == (1, 1) and b.ndim == 1 and b.shape[0] != 1:  # SciPy: a number against a vector
        return squeeze(solve(a, expand_dims(b, 0), lower, check_finite=check_finite, assume_a=assume_a, verify=verify), -2)
    attrs = (assume_a, lower, bool(check_finite))
    vector = b.ndim == 1
    columns = expand_dims(b, 1) if vector else b
    if _pays(a, columns, assume_a):
        x = results("refined_solve", (a, columns), (*attrs, True))[0]
    else:
        x = with_rhs("solve", (a,), (2,), columns, attrs)
    x = verified("solve", (x,), (a, columns), (assume_a, lower), verify)[0]
    return squeeze(x, -1) if vector else x


def _system(a: Any, b: Any, assume_a: str | None, lower: bool, transposed: bool = False) -> tuple:
    """Return the operands of a system with what is said of its matrix in long words; a transposed one is a view."""
    if assume_a is not None and assume_a not in _ASSUME:
        allowed = ", ".join(map(repr, _ASSUME))
        raise ValueError(f"{assume_a} is not a recognized matrix structure; choose from {allowed}")
    a, b = inexact(a), inexact(b)
    if a.ndim < 2 and a.size == 1:
        a = a.reshape((1, 1))
    if b.ndim == 0:
        b = b.reshape((1,))
    a = square(a, "solve")
    assume_a = _SHORT.get(assume_a, assume_a)
    if transposed:
        if a.dtype.kind == "c":
            raise NotImplementedError("solve(transposed=True) takes real matrices, as SciPy's does; give a.T or a.T.conj()")
        a, lower = a.mT, not lower
        assume_a = {"upper triangular": "lower triangular", "lower triangular": "upper triangular"}.get(assume_a, assume_a)
    if assume_a == "hermitian" and a.dtype.kind == "f":
        assume_a = "symmetric"
    return a, b, assume_a, bool(lower)


def _pays(a: Array, b: Array, assume_a: str | None) -> bool:
    """Return whether a system is to be tried in single precision first."""
    return (
        settings.mixed_precision
        and a.ndim == b.ndim == 2
        and np.result_type(a.dtype, b.dtype).char in "dD"
        and a.dtype.char in "dD"
        and a.shape[0] >= LEAST_MIXED
        and b.shape[1] <= a.shape[0] * MOST_COLUMNS
        and assume_a in (None, "general", "positive definite")
    )


@dataclass(frozen=True)
class Refinement:
    """The certificate of a refined solution: four lazy numbers, computed with it.

    Attributes
    ----------
    backward_error : Array
        Largest over the right-hand sides of ``||b - A x|| / (||A|| ||x|| + ||b||)`` in the infinity norm: the solution is the
        exact one of a system that is this close to the given one.
    steps : Array
        Steps of refinement made.
    rcond : Array
        Estimate of the reciprocal condition; NaN where only the single precision factors were needed.
    """

    _numbers: Array

    @property
    def backward_error(self) -> Array:
        """Largest normwise backward error over the right-hand sides."""
        return self._numbers[0]

    @property
    def steps(self) -> Array:
        """Number of refinement steps."""
        return self._numbers[2]

    @property
    def rcond(self) -> Array:
        """Estimate of the reciprocal condition."""
        return self._numbers[3]

    @property
    def route(self) -> str:
        """How the solution was reached, in words; computes."""
        return ROUTES[int(self._numbers[1])]


def refine(
    a: Any, b: Any, *, assume_a: str | None = None, lower: bool = False, check_finite: bool = True, low: bool = True
) -> tuple[Array, Refinement]:
    """Solve ``A x = b`` with a certificate of how well.

    Parameters
    ----------
    a : (N, N) array_like
    b : (N,) or (N, K) array_like
    assume_a, lower, check_finite
        As in :func:`solve`.
    low : bool
        Whether to try factors in single precision first, with iterative refinement, then GMRES, then factors in double
        precision. Single precision operands are solved as they are.

    Returns
    -------
    x : Array
        In the shape of `b`.
    info : Refinement
        ``info.backward_error``, ``info.route``, ``info.steps``, ``info.rcond``.

    Raises
    ------
    LinAlgError
        The matrix is singular in double precision.

    Notes
    -----
    Cost: half of a double precision factorisation and 4 N^2 flops a step; after a failure the double precision
    factorisation as well. Memory: the operands and half a copy of A. Source: E. Carson, N. Higham (2018); LAPACK DSGESV.

    Examples
    --------
    >>> import pypto
    >>> x, info = pypto.linalg.refine([[4.0, 1.0], [1.0, 3.0]], [5.0, 4.0])
    >>> float(info.backward_error) < 1e-15, info.route
    (True, 'single + refinement')
    """
    a, b, assume_a, lower = _system(a, b, assume_a, lower)
    if a.ndim > 2:
        raise ValueError(f"refine takes one matrix; got shape {a.shape}")
    vector = b.ndim == 1
    columns = expand_dims(b, 1) if vector else b
    x, numbers = results("refined_solve", (a, columns), (assume_a, lower, bool(check_finite), bool(low)))
    return squeeze(x, -1) if vector else x, Refinement(numbers)


def cho_solve(c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """Solve ``A x = b`` from :func:`cho_factor`'s result.

    Parameters
    ----------
    c_and_lower : tuple
    b : (..., N) or (..., N, K) array_like
    overwrite_b : bool
        Accepted; operands never change.
    check_finite : bool

    Returns
    -------
    Array
        In the shape of `b`.

    Notes
    -----
    Cost: 2 N^2 K flops. Source: LAPACK xPOTRS.

    Examples
    --------
    >>> import pypto
    >>> pypto.linalg.cho_solve((pypto.eye(2) * 2, True), pypto.ones(2)).tolist()
    [0.25, 0.25]
    """
    c, lower = c_and_lower
    return with_rhs("cho_solve", (square(c, "cho_solve"),), (2,), b, (bool(lower), bool(check_finite)))


def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solve ``op(A) x = b`` for a triangular matrix; the other triangle is not read.

    Parameters
    ----------
    a : (..., N, N) array_like
    b : (..., N) or (..., N, K) array_like
    trans : {0, 1, 2, "N", "T", "C"}
        A, its transpose, its conjugate transpose.
    lower : bool
    unit_diagonal : bool
        Take the diagonal as ones, without reading it.
    overwrite_b : bool
        Accepted; operands never change.
    check_finite : bool

    Returns
    -------
    Array
        In the shape of `b`.

    Raises
    ------
    LinAlgError
        A zero on the diagonal: on every rank, with its index.

    Notes
    -----
    Cost: N^2 K flops over all ranks. Source: LAPACK xTRTRS, PBLAS PxTRSM.

    Examples
    --------
    >>> import pypto
    >>> pypto.linalg.solve_triangular(pypto.asarray([[2.0, 0], [1, 1]]), pypto.ones(2), lower=True).tolist()
    [0.5, 0.5]
    """
    codes = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}
    if trans not in codes:
        raise ValueError(f"trans={trans!r} is not allowed; give 0 or 'N', 1 or 'T', 2 or 'C'")
    attrs = (codes[trans], bool(lower), bool(unit_diagonal), bool(check_finite))
    return with_rhs("solve_triangular", (square(a, "solve_triangular"),), (2,), b, attrs)


def solve_banded(
    l_and_u: tuple[int, int],
    ab: Any,
    b: Any,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solve ``A x = b`` for a banded matrix in diagonal storage, ``ab[u + i - j, j] = A[i, j]``.

    Parameters
    ----------
    l_and_u : tuple of int
        Numbers of diagonals below and above the main one.
    ab : (..., l + u + 1, N) array_like
    b : (..., N) or (..., N, K) array_like
    overwrite_ab, overwrite_b : bool
        Accepted; operands never change.
    check_finite : bool

    Returns
    -------
    Array
        In the shape of `b`.

    Raises
    ------
    LinAlgError
        The matrix is singular.

    Notes
    -----
    Cost: every device factors the band, 2 N l (l + u) flops, and solves for its share of the K right-hand sides.
    Source: LAPACK xGBSV, xGTSV.

    Examples
    --------
    >>> import pypto
    >>> ab = pypto.asarray([[0.0, 1.0], [2.0, 2.0], [0.0, 0.0]])
    >>> pypto.linalg.solve_banded((1, 1), ab, [3.0, 2.0]).tolist()
    [1.0, 1.0]
    """
    below, above = map(int, l_and_u)
    ab = matrix(ab, "solve_banded")
    if below < 0 or above < 0 or below + above + 1 != ab.shape[-2]:
        raise ValueError(
            f"invalid values for the number of lower and upper diagonals: l+u+1 ({below + above + 1}) does not equal "
            f"ab.shape[0] ({ab.shape[-2]})"
        )
    return with_rhs("solve_banded", (ab,), (2,), b, (below, above, False, False, bool(check_finite)))


def solveh_banded(
    ab: Any, b: Any, overwrite_ab: bool = False, overwrite_b: bool = False, lower: bool = False, check_finite: bool = True
) -> Array:
    """Solve ``A x = b`` for a Hermitian positive definite banded matrix, of which one half is stored by diagonals.

    Parameters
    ----------
    ab : (..., u + 1, N) array_like
        ``ab[u + i - j, j] = A[i, j]`` for the upper half, ``ab[i - j, j] = A[i, j]`` for the lower.
    b : (..., N) or (..., N, K) array_like
    overwrite_ab, overwrite_b : bool
        Accepted; operands never change.
    lower : bool
    check_finite : bool

    Returns
    -------
    Array
        In the shape of `b`.

    Raises
    ------
    LinAlgError
        The matrix is not positive definite.

    Notes
    -----
    Cost: every device factors the band, N u^2 flops, and solves for its share of the K right-hand sides.
    Source: LAPACK xPBSV, xPTSV.

    Examples
    --------
    >>> import pypto
    >>> pypto.linalg.solveh_banded([[0.0, 2.0], [4.0, 5.0]], [6.0, 7.0]).tolist()
    [1.0, 1.0]
    """
    ab = matrix(ab, "solveh_banded")
    return with_rhs("solve_banded", (ab,), (2,), b, (0, ab.shape[-2] - 1, True, bool(lower), bool(check_finite)))


def inv(
    a: Any, overwrite_a: bool = False, check_finite: bool = True, *, assume_a: str | None = None, lower: bool = False
) -> Array:
    """Inverse of a square matrix.

    Parameters
    ----------
    a : (..., N, N) array_like
    overwrite_a : bool
        Accepted; operands never change.
    check_finite : bool
    assume_a, lower
        As in :func:`solve`.

    Returns
    -------
    (..., N, N) Array

    Raises
    ------
    LinAlgError
        The matrix is singular.

    Warns
    -----
    LinAlgWarning
        The estimated condition exceeds the reciprocal of the rounding unit.

    Notes
    -----
    Cost: on several devices that of :func:`solve` with the N columns of the identity, 8/3 N^3 flops; LAPACK's 2 N^3 on
    one. A system is solved better, and cheaper, by :func:`solve`.

    Examples
    --------
    >>> import pypto
    >>> pypto.linalg.inv([[2.0, 0.0], [0.0, 4.0]]).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    a, _, assume_a, lower = _system(matrix(a, "inv"), zeros(1), assume_a, lower)
    return row("inv", (a,), (assume_a, lower, bool(check_finite)), (2,))
