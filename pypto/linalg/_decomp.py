"""Factorisations: LU, Cholesky, LDL^T, QR and their relatives."""

from typing import Any

import numpy as np

from pypto.array.array import Array, apply
from pypto.array.creation import eye, zeros
from pypto.array.manipulation import concat, flip, ravel, reshape, tril, triu
from pypto.linalg._common import inexact, matrix, row, square, verified

__all__ = ["cho_factor", "cholesky", "ldl", "lu", "lu_factor", "qr", "qr_multiply", "rq"]


def lu_factor(
    a: Any,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    pivoting: str = "partial",
    verify: bool | None = None,
) -> tuple[Array, Array]:
    """LU factorisation with partial pivoting: ``A = P L U``.

    Parameters
    ----------
    a : (..., M, N) array_like
    overwrite_a : bool
        Accepted; operands never change, and a factorisation works in place on a copy of its own.
    check_finite : bool
        Whether Inf and NaN are an error.
    pivoting : {"partial", "tournament"}
        How a panel that is spread over several devices chooses its pivots: the largest element of each column in turn, as
        LAPACK does, or a tournament of the devices' candidate rows, with a few messages a panel instead of one a column.
    verify : bool, optional
        Compare the result with the operands on a random vector when it is computed (default: ``config(verify=...)``).

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
    Source: LAPACK xGETRF, ScaLAPACK PxGETRF; lookahead as in SLATE; tournaments: L. Grigori, J. Demmel, H. Xiang, CALU (2011).

    Examples
    --------
    >>> import pypto
    >>> lu, piv = pypto.linalg.lu_factor(pypto.asarray([[1.0, 2.0], [3.0, 4.0]]))
    >>> piv.tolist()
    [1, 1]
    """
    if pivoting not in ("partial", "tournament"):
        raise ValueError(f"pivoting={pivoting!r} is not allowed; give 'partial' or 'tournament'")
    a = matrix(a, "lu_factor")
    made = row("lu_factor", (a,), (bool(check_finite), pivoting), (2,), several=True)
    return verified("lu", made, (a,), (), verify)


def lu(
    a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True, p_indices: bool = False
) -> tuple[Array, ...]:
    """LU decomposition with partial pivoting into separate factors, ``A = P @ L @ U``.

    Parameters
    ----------
    a : (..., M, N) array_like
    permute_l : bool
        Return ``P @ L`` and ``U``.
    overwrite_a, check_finite : bool
        As in :func:`lu_factor`.
    p_indices : bool
        Return the permutation as indices: ``A = L[p] @ U``.

    Returns
    -------
    p : (..., M, M) Array, or (..., M) Array of int64
        Of an empty matrix (0, 0), or (0,), as SciPy has it.
    l : (..., M, K) Array, K = min(M, N)
        Unit lower triangular.
    u : (..., K, N) Array
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
    a = matrix(a, "lu")
    m, n = a.shape[-2:]
    k = min(m, n)
    factors, piv = lu_factor(a, check_finite=check_finite)
    lower = tril(factors[..., :k], -1) + eye(m, k, dtype=a.dtype)
    upper = triu(factors[..., :k, :])
    perm = row("permutation", (piv,), (m if k else 0,), (1,))  # SciPy: nothing is permuted in an empty matrix
    if permute_l and not k:
        return lower, upper
    if permute_l:
        return row("permute_rows", (lower, perm), (), (2, 1)), upper
    if p_indices:
        return row("inverse_permutation", (perm,), (), (1,)), lower, upper
    real = np.empty(0, a.dtype).real.dtype
    return row("permutation_matrix", (perm,), (real.str,), (1,)), lower, upper


def cholesky(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True, *, verify: bool | None = None
) -> Array:
    """Cholesky decomposition ``A = L L^H`` (`lower`) or ``A = U^H U`` of a Hermitian positive definite matrix.

    Parameters
    ----------
    a : (..., N, N) array_like
        Only the named triangle is read.
    lower : bool
    overwrite_a : bool
        Accepted; operands never change.
    check_finite : bool
    verify : bool, optional
        Compare the result with the operands on a random vector when it is computed (default: ``config(verify=...)``).

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
    a = square(a, "cholesky")
    made = row("cholesky", (a,), (bool(lower), True, bool(check_finite)), (2,))
    return verified("cholesky", (made,), (a,), (bool(lower),), verify)[0]


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
    factor = row("cholesky", (square(a, "cho_factor"),), (bool(lower), False, bool(check_finite)), (2,))
    return factor, bool(lower)


def ldl(
    A: Any, lower: bool = True, hermitian: bool = True, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array, Array]:
    """Factorisation ``A = L D L^H`` or ``U D U^H`` of a symmetric or Hermitian matrix, with diagonal pivoting.

    Parameters
    ----------
    A : (..., N, N) array_like
        Only the named triangle is read.
    lower : bool
    hermitian : bool
        False: a complex symmetric matrix, ``A = L D L^T``.
    overwrite_a : bool
        Accepted; operands never change.
    check_finite : bool

    Returns
    -------
    lu : (..., N, N) Array
        The outer factor, its rows permuted back: ``A = lu @ D @ lu^H``.
    d : (..., N, N) Array
        Block diagonal, blocks of order one and two.
    perm : (..., N) Array of int64
        ``lu[perm]`` is triangular with a unit diagonal.

    Notes
    -----
    Cost: N^3/3 flops over all devices, and a message or two a column. Source: J. Bunch, L. Kaufman (1977); LAPACK xSYTRF.

    Examples
    --------
    >>> import numpy as np, pypto
    >>> a = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> lu, d, perm = pypto.linalg.ldl(a)
    >>> bool(np.allclose(np.asarray(lu @ d @ lu.T), a))
    True
    """
    a = square(A, "ldl")
    hermitian = bool(hermitian) or a.dtype.kind == "f"
    attrs = (hermitian, bool(check_finite))
    if lower:
        return row("ldl", (a,), attrs, (2,), several=True)
    # Read from the other end the upper triangle is the lower one.
    made, d, perm = row("ldl", (flip(a, axis=(-2, -1)),), attrs, (2,), several=True)
    return flip(made, axis=(-2, -1)), flip(d, axis=(-2, -1)), a.shape[-1] - 1 - flip(perm, axis=-1)


_MODES = ("full", "r", "economic", "raw")


def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: int | None = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
    *,
    verify: bool | None = None,
) -> tuple:
    """QR decomposition ``A = Q R``, or ``A[:, p] = Q R`` with column pivoting.

    Parameters
    ----------
    a : (..., M, N) array_like
    overwrite_a, lwork
        Accepted; operands never change.
    mode : {"full", "r", "economic", "raw"}
        Q of order M; R alone; Q of K = min(M, N) columns; the reflections as LAPACK stores them.
    pivoting : bool
        Choose as the next column the one of largest remaining norm, which shows the rank.
    check_finite : bool
    verify : bool, optional
        Compare the result with the operands on a random vector when it is computed (default: ``config(verify=...)``).

    Returns
    -------
    Q : (..., M, M) or (..., M, K) Array
        Not for ``"r"``; for ``"raw"`` a pair: (..., M, N) reflections and (..., K) their factors tau.
    R : (..., M, N) or (..., K, N) Array
        Its diagonal need not be positive, nor, of a complex matrix on several devices, real.
    P : (..., N) Array of int32
        With `pivoting`.

    Raises
    ------
    ValueError
        An unknown mode; Inf or NaN with `check_finite`, when it is computed.

    Notes
    -----
    Cost: 2 M N^2 - 2/3 N^3 flops for R (N <= M) and as many for economic Q, over all devices. A matrix that is taller than
    four times its width on every device is factored by a tree over the devices (TSQR); others by blocked reflections with
    lookahead. Source: LAPACK xGEQRT, xGEQP3; J. Demmel et al. (2012).

    Examples
    --------
    >>> import numpy as np, pypto
    >>> a = np.array([[3.0, 1.0], [4.0, 2.0], [0.0, 5.0]])
    >>> q, r = pypto.linalg.qr(a, mode="economic")
    >>> bool(np.allclose(np.asarray(q @ r), a))
    True
    """
    if mode not in _MODES:
        raise ValueError(f"mode={mode!r} is not allowed; choose from {', '.join(map(repr, _MODES))}")
    a = matrix(a, "qr")
    made = row("qr", (a,), (mode, bool(pivoting), bool(check_finite)), (2,), several=True)
    if mode == "raw":
        return ((made[0], made[1]), *made[2:])
    if mode != "r":
        made = verified("qr", made, (a,), (), verify)
    return made if len(made) > 1 or mode != "r" else (made[0],)


def rq(
    a: Any, overwrite_a: bool = False, lwork: int | None = None, mode: str = "full", check_finite: bool = True
) -> tuple[Array, Array] | Array:
    """RQ decomposition ``A = R Q``.

    Parameters
    ----------
    a : (..., M, N) array_like
    overwrite_a, lwork
        Accepted; operands never change.
    mode : {"full", "r", "economic"}
    check_finite : bool

    Returns
    -------
    R : (..., M, N) or (..., M, K) Array, K = min(M, N)
        Upper triangular, seen from the lower right corner.
    Q : (..., N, N) or (..., K, N) Array
        Not for ``"r"``.

    Notes
    -----
    With J the reversal of order, A^H J = Q' R' gives A = (J R'^H J) (J Q'^H). Cost: that of :func:`qr`.

    Examples
    --------
    >>> import numpy as np, pypto
    >>> a = np.array([[3.0, 1.0, 2.0], [4.0, 2.0, 1.0]])
    >>> r, q = pypto.linalg.rq(a)
    >>> bool(np.allclose(np.asarray(r @ q), a))
    True
    """
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"mode={mode!r} is not allowed; choose from 'full', 'r', 'economic'")
    a = matrix(a, "rq")
    made = qr(flip(a.mT.conj(), axis=-1), mode=mode, check_finite=check_finite)
    r = flip(made[-1].mT.conj(), axis=(-2, -1))
    return r if mode == "r" else (r, flip(made[0].mT.conj(), axis=-2))


def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Array, ...]:
    """QR decomposition of `a` and the product of its Q with `c`, without forming Q.

    Parameters
    ----------
    a : (M, N) array_like
    c : array_like of one or two axes
    mode : {"left", "right"}
        ``Q @ c`` with K = min(M, N) rows of `c`, or ``c @ Q`` with M columns of `c`.
    pivoting : bool
    conjugate : bool
        Multiply with the conjugate of Q.
    overwrite_a, overwrite_c : bool
        Accepted; operands never change.

    Returns
    -------
    CQ : Array
        (M, columns of c), or (rows of c, K).
    R : (K, N) Array
    P : (N,) Array of int32
        With `pivoting`.

    Notes
    -----
    Cost: that of :func:`qr` in mode ``"raw"`` and 4 M K flops a vector. Source: LAPACK xORMQR.

    Examples
    --------
    >>> import numpy as np, pypto
    >>> a = np.array([[3.0, 1.0], [4.0, 2.0], [0.0, 5.0]])
    >>> qc, r = pypto.linalg.qr_multiply(a, np.eye(2), "left")
    >>> bool(np.allclose(np.asarray(qc @ r), a))
    True
    """
    if mode not in ("left", "right"):
        raise ValueError(f"mode={mode!r} is not allowed; give 'left' or 'right'")
    a, c = matrix(a, "qr_multiply"), inexact(c)
    if c.ndim > 2 or a.ndim > 2:
        raise ValueError(f"qr_multiply takes one matrix each; got shapes {a.shape} and {c.shape}")
    vector = c.ndim < 2
    if vector:
        c = reshape(c, (-1, 1) if mode == "left" else (1, -1))
    m, k = a.shape[0], min(a.shape)
    if (c.shape[0] != k) if mode == "left" else (c.shape[1] != m):
        raise ValueError(f"Array shapes are not compatible for {'Q @ c' if mode == 'left' else 'c @ Q'}: {a.shape}, {c.shape}")
    (reflections, tau), *rest = qr(a, mode="raw", pivoting=pivoting, check_finite=False)
    if mode == "left":
        padded = concat([c, zeros((m - k, c.shape[1]), dtype=c.dtype)]) if m > k else c
        product = _apply_q(reflections, tau, padded, "N", conjugate)
    else:  # (c Q)^H = Q^H c^H
        product = _apply_q(reflections, tau, c.T.conj(), "C", conjugate).T.conj()[:, :k]
    return (ravel(product) if vector else product, *rest)


def _apply_q(reflections: Array, tau: Array, c: Array, trans: str, conjugate: bool) -> Array:
    """Return op(Q) c, or its conj(Q) counterpart: conj(Q) c = conj(Q conj(c))."""
    if conjugate:
        return apply("apply_q", (reflections, tau, c.conj()), (trans,)).conj()
    return apply("apply_q", (reflections, tau, c), (trans,))
