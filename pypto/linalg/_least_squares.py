"""Least squares and pseudo-inverses."""

from typing import Any

import numpy as np

from pypto.array.array import Array, apply, results
from pypto.array.creation import full, zeros
from pypto.array.elementwise import FUNCTIONS, astype
from pypto.array.manipulation import concat, expand_dims, squeeze
from pypto.linalg._common import gathered, inexact, matrix, over_batch, row
from pypto.linalg._decomp import qr
from pypto.linalg._solve import solve_triangular

__all__ = ["lstsq", "pinv"]

_DRIVERS = ("gelsd", "gelsy", "gelss")


def lstsq(
    a: Any,
    b: Any,
    cond: float | None = None,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    lapack_driver: str | None = None,
) -> tuple:
    """Least squares solution of ``A x = b``, of minimum norm where there are several. Computes at once.

    Parameters
    ----------
    a : (..., M, N) array_like
    b : (..., M) or (..., M, K) array_like
    cond : float, optional
        Singular values below `cond` times the largest count as zero; default the rounding unit.
    overwrite_a, overwrite_b : bool
        Accepted; operands never change.
    check_finite : bool
    lapack_driver : {"gelsd", "gelss", "gelsy"}, optional
        The first two find the rank from singular values, ``"gelsy"`` from a QR factorisation with column pivoting, which
        stays distributed throughout; the others solve a triangle of order min(M, N) on one device.

    Returns
    -------
    x : (..., N) or (..., N, K) Array
    residues : Array
        Squared norms of ``b - A x`` where M > N: NaN where the rank is less than N. Empty where M <= N, and for ``"gelsy"``.
    rank : int
    s : (..., min(M, N)) Array, or None
        Singular values; None for ``"gelsy"``.

    Raises
    ------
    ValueError
        Shapes that do not match, an unknown driver, Inf or NaN with `check_finite`.

    Notes
    -----
    Cost: 2 M N^2 - 2/3 N^3 flops over all devices for the triangle of [A b], and a few N^3 on one device for the singular
    values. Source: LAPACK xGELSD, xGELSY; G. Golub, C. Van Loan, Matrix Computations, 5.3.

    Examples
    --------
    >>> import pypto
    >>> x, residues, rank, s = pypto.linalg.lstsq([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]], [1.0, 2.0, 3.0])
    >>> [round(v, 12) for v in x.tolist()], round(float(residues), 12), rank
    ([1.0, 1.0], 9.0, 2)
    """
    driver = lapack_driver or "gelsd"
    if driver not in _DRIVERS:
        raise ValueError(f'LAPACK driver "{driver}" is not found; choose from {", ".join(map(repr, _DRIVERS))}')
    a, b = inexact(a), inexact(b)
    if a.ndim < 2:
        raise ValueError(f"Input array a should be 2D; got shape {a.shape}")
    if a.ndim > 2 or b.ndim > 2:
        vectors = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape[-1] == a.shape[-2] and b.shape[-2] != a.shape[-2])
        call = lambda x, y: lstsq(x, y, cond, check_finite=check_finite, lapack_driver=driver)
        return over_batch(call, (a, b), (2, 1 if vectors else 2))
    if b.ndim == 0 or a.shape[0] != b.shape[0]:
        raise ValueError(f"Shape mismatch: a and b should have the same number of rows ({a.shape[0]} != {b.shape[:1]}).")
    if check_finite and not bool(FUNCTIONS["all"](FUNCTIONS["isfinite"](a)) & FUNCTIONS["all"](FUNCTIONS["isfinite"](b))):
        raise ValueError("array must not contain infs or NaNs")
    dtype = np.result_type(a.dtype, b.dtype)
    a, vector = astype(a, dtype), b.ndim == 1
    columns = astype(expand_dims(b, 1) if vector else b, dtype)
    if 0 in a.shape or 0 in columns.shape:
        return _no_least_squares(a, b, dtype, driver)
    cond = float(np.finfo(dtype).eps if cond is None else cond)
    solver = _by_pivoting if driver == "gelsy" else _by_singular_values
    x, residues, rank, s = solver(a, columns, cond, driver)
    if residues is None and a.shape[0] > a.shape[1] and driver != "gelsy":
        residues = full(columns.shape[1], float("nan"), dtype=np.empty(0, dtype).real.dtype)
    if residues is None:
        residues = zeros((0,), dtype=dtype)
    elif vector:
        residues = residues[0]
    return squeeze(x, 1) if vector else x, residues, rank, s


def _no_least_squares(a: Array, b: Array, dtype: np.dtype, driver: str) -> tuple:
    """Return the answer to a problem without rows, columns or right-hand sides."""
    real = np.empty(0, dtype).real.dtype
    x = zeros((a.shape[1], *b.shape[1:]), dtype=dtype)
    size = FUNCTIONS["abs"](b)
    residues = FUNCTIONS["sum"](size * size, axis=0) if a.shape[1] == 0 else zeros((0,), dtype=dtype)
    rank = 0
    if 0 not in a.shape:
        rank = lstsq(a, zeros(a.shape[0], dtype=dtype))[2]
    return x, residues, rank, None if driver == "gelsy" else zeros((0,), dtype=real)


def _by_singular_values(a: Array, b: Array, cond: float, driver: str) -> tuple:
    """Reduce the problem to a triangle on several devices and solve that, whole, on one.

    A tall A: the triangle of [A B] = Q [R C; 0 S] holds Q^H B and, in S, what of B no x reaches. A wide one: A^H = Q R, and
    x = Q y where y solves R^H y = b.
    """
    (m, n), k = a.shape, b.shape[1]
    why = f"lstsq(lapack_driver={driver!r})"
    outside = None
    if a._node.context.size == 1:
        x, sums, rank, s = gathered("lstsq", (a, b), (cond, driver), why)
        rank = int(rank)
        return x, sums if m > n and rank == n else None, rank, s
    if m >= n + k:
        (triangle,) = results("qr", (concat([a, b], axis=1),), ("triangle", False, False))
        core, rhs, outside = triangle[:n, :n], triangle[:n, n:], triangle[n:, n:]
        x, _, rank, s = gathered("lstsq", (core, rhs), (cond, driver), why)
    elif m >= n:
        (reflections, tau), r = qr(a, mode="raw", check_finite=False)
        turned = apply("apply_q", (reflections, tau, b), ("C",))
        outside = turned[n:]
        x, _, rank, s = gathered("lstsq", (r, turned[:n]), (cond, driver), why)
    else:
        (reflections, tau), r = qr(a.T.conj(), mode="raw", check_finite=False)
        y, _, rank, s = gathered("lstsq", (r.T.conj(), b), (cond, driver), why)
        x = apply("apply_q", (reflections, tau, concat([y, zeros((n - m, k), dtype=b.dtype)])), ("N",))
    rank = int(rank)
    if m <= n or rank < n:
        return x, None, rank, s
    size = FUNCTIONS["abs"](outside)
    return x, FUNCTIONS["sum"](size * size, axis=0), rank, s


def _by_pivoting(a: Array, b: Array, cond: float, driver: str) -> tuple:
    """A P = Q [R1; 0] with as many rows as the rank, R1^H = Z T: x = P Z T^-H (Q^H b), of least norm."""
    n, k = a.shape[1], b.shape[1]
    (reflections, tau), r, perm = qr(a, mode="raw", pivoting=True, check_finite=False)
    d = np.abs(np.asarray(apply("main_diagonal", (r,))))
    rank = int(np.count_nonzero(d > cond * d[0])) if d[0] > 0 else 0
    if rank == 0:
        return zeros((n, k), dtype=b.dtype), None, 0, None
    c = apply("apply_q", (reflections, tau, b), ("C",))[:rank]
    if rank == n:
        y = solve_triangular(r[:n, :n], c, check_finite=False)
    else:
        (v, factors), t = qr(r[:rank].T.conj(), mode="raw", check_finite=False)
        z = solve_triangular(t, c, trans="C", check_finite=False)
        y = apply("apply_q", (v, factors, concat([z, zeros((n - rank, k), dtype=b.dtype)])), ("N",))
    return row("permute_rows", (y, astype(perm, np.int64)), (), (2, 1)), None, rank, None


def pinv(
    a: Any, *, atol: float | None = None, rtol: float | None = None, return_rank: bool = False, check_finite: bool = True
) -> Any:
    """Moore-Penrose pseudo-inverse by singular values.

    Parameters
    ----------
    a : (..., M, N) array_like
    atol, rtol : float, optional
        Singular values up to ``atol + rtol * largest`` count as zero; defaults 0 and max(M, N) times the rounding unit.
    return_rank : bool
    check_finite : bool

    Returns
    -------
    B : (..., N, M) Array
    rank : Array of int64
        With `return_rank`.

    Raises
    ------
    ValueError
        A negative tolerance; Inf or NaN with `check_finite`, when it is computed.

    Notes
    -----
    Cost: an economic QR and a product over all devices, and the pseudo-inverse of a triangle of order min(M, N), a few
    min(M, N)^3 flops, on one.

    Examples
    --------
    >>> import pypto
    >>> pypto.linalg.pinv([[2.0, 0.0], [0.0, 0.0]]).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    a = matrix(a, "pinv")
    if a.ndim > 2:
        call = lambda x: pinv(x, atol=atol, rtol=rtol, return_rank=return_rank, check_finite=check_finite)
        return over_batch(call, (a,), (2,))
    m, n = a.shape
    atol = 0.0 if atol is None else float(atol)
    rtol = max(m, n) * float(np.finfo(a.dtype).eps) if rtol is None else float(rtol)
    if atol < 0 or rtol < 0:
        raise ValueError(f"atol and rtol values must be positive; got {atol} and {rtol}")
    tolerances = (atol, rtol)
    if a._node.context.size == 1:
        b, rank = gathered("pinv", (a,), (*tolerances, bool(check_finite)), "pinv")
    else:
        q, r = qr(a if m >= n else a.T.conj(), mode="economic", check_finite=check_finite)
        core, rank = gathered("pinv", (r,), (*tolerances, False), "pinv")
        b = core @ q.T.conj()
        b = b if m >= n else b.T.conj()
    return (b, rank) if return_rank else b
