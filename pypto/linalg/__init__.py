"""Dense linear algebra on distributed arrays: scipy.linalg's names, signatures, results and exceptions."""

import operator
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg import LinAlgWarning

from pypto.array import Array, apply, as_array, results
from pypto.elementwise import FUNCTIONS, astype
from pypto.linalg import _ops  # noqa: F401  (fills the operator table)
from pypto.manipulation import axes_tuple, broadcast_to, expand_dims, matmul, squeeze, tril, triu
from pypto.ops_elementwise import broadcast_shapes

__all__ = [
    "LinAlgError",
    "LinAlgWarning",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "norm",
    "solve",
    "solve_triangular",
]

_ASSUME = (
    "diagonal",
    "tridiagonal",
    "banded",
    "upper triangular",
    "lower triangular",
    "symmetric",
    "hermitian",
    "positive definite",
    "general",
    "gen",
    "sym",
    "her",
    "pos",
)


def _inexact(x: Any) -> Array:
    """Return an operand in one of LAPACK's four types; integers and half precision are converted as SciPy does."""
    a = as_array(x)
    if a.dtype.char in "fdFD":
        return a
    return astype(a, np.float32 if a.dtype == np.float16 else np.float64)


def _matrix(x: Any, name: str) -> Array:
    a = _inexact(x)
    if a.ndim < 2:
        raise ValueError(f"{name} needs a matrix; got an array of shape {a.shape}")
    return a


def _square(x: Any, name: str) -> Array:
    a = _matrix(x, name)
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"{name} needs a square matrix; got shape {a.shape}")
    return a


def _row(name: str, arrays: tuple[Array, ...], attrs: tuple, ranks: tuple[int, ...], several: bool = False) -> Any:
    """Apply a row of the table to matrices, or to each problem of a batch."""
    call = results if several else apply
    if arrays[0].ndim == ranks[0]:
        return call(name, arrays, attrs)
    lead = broadcast_shapes(*(a.shape[: a.ndim - r] for a, r in zip(arrays, ranks, strict=True)))
    full = tuple(broadcast_to(a, (*lead, *a.shape[a.ndim - r :])) for a, r in zip(arrays, ranks, strict=True))
    return call("batch", full, (name, attrs, ranks))


def _with_rhs(name: str, matrices: tuple[Array, ...], ranks: tuple[int, ...], b: Any, attrs: tuple) -> Array:
    """Apply a solve to a right-hand side that is a vector or a matrix."""
    b = _inexact(b)
    n = matrices[0].shape[-1]
    vector = b.ndim == 1
    if b.ndim == 0 or b.shape[0 if vector else -2] != n:
        raise ValueError(f"{name}: a matrix of shape {matrices[0].shape} and a right-hand side of shape {b.shape} do not match")
    if vector:
        b = expand_dims(b, 1)
    x = _row(name, (*matrices, b), attrs, (*ranks, 2))
    return squeeze(x, -1) if vector else x


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """LU factorisation with partial pivoting: ``A = P L U``.

    Parameters
    ----------
    a : (..., M, N) array_like
    overwrite_a : bool
        Accepted; operands never change, and a factorisation works in place on a copy of its own.
    check_finite : bool
        Whether Inf and NaN are an error.

    Returns
    -------
    lu : (..., M, N) Array
        L below the diagonal (its unit diagonal is not stored), U on and above it; square tiles over a 2-D grid.
    piv : (..., K) Array of int32, K = min(M, N)
        Row i was interchanged with row piv[i].

    Raises
    ------
    ValueError
        Inf or NaN with `check_finite`, when the factorisation is computed; on every rank.

    Warns
    -----
    LinAlgWarning
        A pivot is exactly zero.

    Notes
    -----
    Cost: M N^2 - N^3/3 flops (N <= M) over all ranks; per rank about N^2/2 (1/p + 1/q) elements moved on a p x q grid.
    Source: LAPACK xGETRF, ScaLAPACK PxGETRF; lookahead as in SLATE.

    Examples
    --------
    >>> import pypto
    >>> lu, piv = pypto.linalg.lu_factor(pypto.asarray([[1.0, 2.0], [3.0, 4.0]]))
    >>> piv.tolist()
    [1, 1]
    """
    return _row("lu_factor", (_matrix(a, "lu_factor"),), (bool(check_finite),), (2,), several=True)


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
    return _with_rhs("lu_solve", (_square(lu_, "lu_solve"), as_array(piv)), (2, 1), b, (int(trans), bool(check_finite)))


def lu(
    a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True, p_indices: bool = False
) -> tuple[Array, ...]:
    """LU decomposition with partial pivoting into separate factors, ``A = P @ L @ U``.

    Parameters
    ----------
    a : (M, N) array_like
    permute_l : bool
        Return ``P @ L`` and ``U``.
    overwrite_a, check_finite : bool
        As in :func:`lu_factor`.
    p_indices : bool
        Return the permutation as indices: ``A = L[p] @ U``.

    Returns
    -------
    p : (M, M) Array, or (M,) Array of int64
    l : (M, K) Array, K = min(M, N)
        Unit lower triangular.
    u : (K, N) Array
        Upper triangular.

    Notes
    -----
    Cost: that of :func:`lu_factor` and one pass over the factors.

    Examples
    --------
    >>> import numpy as np, pypto
    >>> p, l, u = pypto.linalg.lu(pypto.asarray([[1.0, 2.0], [3.0, 4.0]]))
    >>> bool(np.allclose(np.asarray(p @ l @ u), [[1, 2], [3, 4]]))
    True
    """
    a = _matrix(a, "lu")
    if a.ndim > 2:
        raise ValueError(f"lu takes one matrix; got shape {a.shape}. lu_factor takes batches")
    m, n = a.shape
    k = min(m, n)
    factors, piv = lu_factor(a, check_finite=check_finite)
    from pypto.creation import eye

    lower = tril(factors[:, :k], -1) + eye(m, k, dtype=a.dtype)
    upper = triu(factors[:k, :])
    perm = apply("permutation", (piv,), (m,))
    if p_indices and not permute_l:
        return apply("inverse_permutation", (perm,)), lower, upper
    real = np.empty(0, a.dtype).real.dtype
    p = apply("permutation_matrix", (perm,), (real.str,))
    return (matmul(p, lower), upper) if permute_l else (p, lower, upper)


def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str | None = None,
    transposed: bool = False,
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
        ``"lower triangular"``, ``"diagonal"``, ``"tridiagonal"``, ``"banded"`` and their long forms.
    transposed : bool
        Solve with the transpose.

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

    Notes
    -----
    Cost: 2/3 N^3 flops (1/3 N^3 for ``"pos"``) and 2 N^2 K for the right-hand sides, over all ranks; memory: the operands
    and one copy of A. Source: LAPACK xGESV, xPOSV.

    Examples
    --------
    >>> import pypto
    >>> pypto.linalg.solve(pypto.asarray([[2.0, 0.0], [1.0, 4.0]]), pypto.asarray([2.0, 9.0])).tolist()
    [1.0, 2.0]
    """
    if assume_a is not None and assume_a not in _ASSUME:
        raise ValueError(f"assume_a={assume_a!r} is not recognised; choose from {', '.join(map(repr, _ASSUME))}")
    a = _square(a, "solve")
    if transposed:  # a view; what was stored below the diagonal is above it then
        a, lower = a.mT, not lower
        assume_a = {"upper triangular": "lower triangular", "lower triangular": "upper triangular"}.get(assume_a, assume_a)
    if a._node.context.size > 1:
        if assume_a in ("upper triangular", "lower triangular"):
            return solve_triangular(a, b, lower=assume_a[0] == "l", check_finite=check_finite)
        a, assume_a = _named_part(a, assume_a, lower)
    return _with_rhs("solve", (a,), (2,), b, (assume_a, bool(lower), bool(check_finite)))


def _named_part(a: Array, assume_a: str | None, lower: bool) -> tuple[Array, str]:
    """Return the whole matrix that the named part stands for, where an algorithm for general matrices solves it."""
    if assume_a in ("pos", "positive definite"):
        return a, "pos"
    if assume_a in ("sym", "symmetric", "her", "hermitian"):
        half = tril(a, -1) if lower else triu(a, 1)
        other = half.T.conj() if assume_a in ("her", "hermitian") else half.T
        diagonal = tril(triu(a))
        if assume_a in ("her", "hermitian") and a.dtype.kind == "c":
            diagonal = astype(diagonal.real, a.dtype)  # the imaginary part of a Hermitian diagonal is not read
        return half + other + diagonal, "gen"
    if assume_a in ("diagonal", "tridiagonal"):
        k = 0 if assume_a == "diagonal" else 1
        return tril(triu(a, -k), k), "gen"
    return a, "gen"


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Cholesky decomposition ``A = L L^H`` (`lower`) or ``A = U^H U`` of a Hermitian positive definite matrix.

    Parameters
    ----------
    a : (..., N, N) array_like
        Only the named triangle is read.
    lower : bool
    overwrite_a : bool
        Accepted; operands never change.
    check_finite : bool

    Returns
    -------
    (..., N, N) Array
        The factor, with zeros in the other triangle.

    Raises
    ------
    LinAlgError
        A leading minor is not positive definite: on every rank, with its order.

    Notes
    -----
    Cost: N^3/3 flops over all ranks. Source: LAPACK xPOTRF; lookahead as in SLATE.

    Examples
    --------
    >>> import pypto
    >>> pypto.linalg.cholesky(pypto.asarray([[4.0, 2.0], [2.0, 5.0]]), lower=True).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    return _row("cholesky", (_square(a, "cholesky"),), (bool(lower), True, bool(check_finite)), (2,))


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, bool]:
    """Cholesky factorisation in the form that :func:`cho_solve` takes.

    Returns
    -------
    c : (..., N, N) Array
        The factor in the named triangle; the other holds what it held.
    lower : bool

    Notes
    -----
    Parameters, errors and cost are those of :func:`cholesky`.

    Examples
    --------
    >>> import pypto
    >>> c = pypto.linalg.cho_factor(pypto.eye(2) * 4)
    >>> pypto.linalg.cho_solve(c, pypto.ones(2)).tolist()
    [0.25, 0.25]
    """
    factor = _row("cholesky", (_square(a, "cho_factor"),), (bool(lower), False, bool(check_finite)), (2,))
    return factor, bool(lower)


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
    return _with_rhs("cho_solve", (_square(c, "cho_solve"),), (2,), b, (bool(lower), bool(check_finite)))


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
    return _with_rhs("solve_triangular", (_square(a, "solve_triangular"),), (2,), b, attrs)


def norm(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, check_finite: bool = True) -> Array:
    """Norm of vectors or matrices; NaN propagates.

    Parameters
    ----------
    a : array_like
    ord : {None, "fro", 1, -1, 2, inf, -inf, other number}, optional
        Of a vector: any number. Of a matrix: None and ``"fro"`` (Frobenius), 1, -1 (column sums), inf, -inf (row sums).
    axis : int or pair of int, optional
        Default: all axes, for arrays of one or two axes or with `ord` None.
    keepdims : bool
    check_finite : bool
        Accepted; a norm of Inf or NaN says so itself.

    Returns
    -------
    Array

    Raises
    ------
    ValueError
        An order that is not defined for the axes.

    Examples
    --------
    >>> import pypto
    >>> float(pypto.linalg.norm(pypto.asarray([3.0, 4.0])))
    5.0
    """
    a = _inexact(a)
    f = FUNCTIONS
    size = f["abs"](a)
    if axis is None and ord is None:
        axes = tuple(range(a.ndim))
    else:
        given = axis if isinstance(axis, tuple) or axis is None else (axis,)
        axes = tuple(operator.index(x) % max(a.ndim, 1) for x in given) if given is not None else tuple(range(a.ndim))
        axes_tuple(axes, a.ndim)
    if ord is None or (ord == "fro" and len(axes) == 2) or (ord == 2 and len(axes) == 1):
        return _scaled_root(size, axes, keepdims)
    if len(axes) == 1:
        return _vector_norm(size, ord, axes, keepdims)
    if len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        inner, outer = axes if abs(ord) == 1 else (axes[1], axes[0])
        sums = f["sum"](size, axis=inner, keepdims=True)
        worst = f["max" if ord > 0 else "min"](sums, axis=outer, keepdims=True)
        return worst if keepdims else squeeze(worst, axes)
    raise ValueError(f"ord={ord!r} is not defined for {len(axes)} axes; matrices take None, 'fro', 1, -1, inf, -inf")


def _scaled_root(size: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Root of the sum of squares, scaled by the largest element so that it neither overflows nor underflows."""
    if size.size == 0:
        return FUNCTIONS["sqrt"](FUNCTIONS["sum"](size, axis=axes, keepdims=keepdims))
    top = FUNCTIONS["max"](size, axis=axes, keepdims=True)
    scale = _scale(top)
    ratio = size / scale
    root = FUNCTIONS["sqrt"](FUNCTIONS["sum"](ratio * ratio, axis=axes, keepdims=True)) * scale
    return root if keepdims else squeeze(root, axes)


def _scale(top: Array) -> Array:
    """Replace zero and infinite scales by one."""
    from pypto.elementwise import where

    return where((top > 0) & FUNCTIONS["isfinite"](top), top, 1.0)


def _vector_norm(size: Array, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    f = FUNCTIONS
    if ord in (np.inf, -np.inf):
        return f["max" if ord > 0 else "min"](size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return astype(f["count_nonzero"](size, axis=axes, keepdims=keepdims), size.dtype)
    if isinstance(ord, str):
        raise ValueError(f"ord={ord!r} is not defined for vectors")
    return f["sum"](size**ord, axis=axes, keepdims=keepdims) ** (1.0 / ord)
