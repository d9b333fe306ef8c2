"""Norms, determinants, ranks, powers: what is read off a matrix or composed of products and solves."""

import operator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pypto.array.array import Array, as_array, results
from pypto.array.creation import eye, ones, zeros
from pypto.array.elementwise import FUNCTIONS, astype, where
from pypto.array.manipulation import axes_tuple, expand_dims, matmul, moveaxis, reshape, squeeze
from pypto.linalg._common import gathered, inexact, matrix, over_batch, row, square
from pypto.linalg._solve import inv, solve

__all__ = [
    "SlogdetResult",
    "cond",
    "det",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "slogdet",
    "tensorsolve",
]


def singular_values(a: Array) -> Array:
    """Return the singular values, descending: on several devices those of the triangle of a QR factorisation."""
    if a.ndim > 2:
        return over_batch(singular_values, (a,), (2,))
    if 0 in a.shape:
        return zeros((0,), dtype=np.empty(0, a.dtype).real.dtype)
    if a._node.context.size > 1:
        tall = a if a.shape[0] >= a.shape[1] else a.T.conj()
        (a,) = results("qr", (tall,), ("triangle", False, False))
    return gathered("svdvals", (a,), (), "singular values")[0]


def _spectral(a: Array, ord: Any) -> Array:
    """Return the largest singular value, the smallest, or the sum of all."""
    if 0 in a.shape[-2:]:
        return zeros(a.shape[:-2], dtype=np.empty(0, a.dtype).real.dtype)
    s = singular_values(a)
    return FUNCTIONS["sum"](s, axis=-1) if ord == "nuc" else s[..., 0 if ord == 2 else -1]


def norm(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, check_finite: bool = True) -> Array:
    """Norm of vectors or matrices; NaN propagates.

    Parameters
    ----------
    a : array_like
    ord : {None, "fro", "nuc", 1, -1, 2, -2, inf, -inf, other number}, optional
        Of a vector: any number. Of a matrix: None and ``"fro"`` (Frobenius), 1, -1 (column sums), inf, -inf (row sums), 2, -2
        (largest, smallest singular value), ``"nuc"`` (their sum).
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

    Notes
    -----
    Cost: a pass over the array; orders 2, -2 and ``"nuc"`` take a QR factorisation and the singular values of its triangle.

    Examples
    --------
    >>> import pypto
    >>> float(pypto.linalg.norm(pypto.asarray([3.0, 4.0])))
    5.0
    """
    a = inexact(a)
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
    if len(axes) == 2 and ord in (2, -2, "nuc"):
        made = _spectral(moveaxis(a, axes, (-2, -1)), ord)
        return expand_dims(made, tuple(sorted(axes))) if keepdims else made
    if len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        inner, outer = axes if abs(ord) == 1 else (axes[1], axes[0])
        sums = f["sum"](size, axis=inner, keepdims=True)
        worst = f["max" if ord > 0 else "min"](sums, axis=outer, keepdims=True)
        return worst if keepdims else squeeze(worst, axes)
    raise ValueError(
        f"ord={ord!r} is not defined for {len(axes)} axes; matrices take None, 'fro', 'nuc', 1, -1, 2, -2, inf, -inf"
    )


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


class SlogdetResult(NamedTuple):
    """Sign (or phase) of a determinant and the logarithm of its absolute value."""

    sign: Array
    logabsdet: Array


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Determinant of a square matrix, in double precision.

    Parameters
    ----------
    a : (..., N, N) array_like
    overwrite_a : bool
        Accepted; operands never change.
    check_finite : bool

    Returns
    -------
    (...) Array of float64 or complex128

    Raises
    ------
    ValueError
        Not square; Inf or NaN with `check_finite`, when it is computed.

    Notes
    -----
    Cost: an LU factorisation. It over- and underflows easily; see :func:`slogdet`.

    Examples
    --------
    >>> import pypto
    >>> float(pypto.linalg.det([[2.0, 0.0], [0.0, 3.0]]))
    6.0
    """
    return _determinant(a, "det", check_finite)[0]


def slogdet(a: Any) -> SlogdetResult:
    """Sign and logarithm of the absolute value of a determinant.

    Parameters
    ----------
    a : (..., N, N) array_like

    Returns
    -------
    SlogdetResult
        ``sign`` (zero of a singular matrix) and ``logabsdet`` (minus infinity then).

    Notes
    -----
    Cost: an LU factorisation.

    Examples
    --------
    >>> import pypto
    >>> sign, logabsdet = pypto.linalg.slogdet(-pypto.eye(3))
    >>> float(sign), float(logabsdet)
    (-1.0, 0.0)
    """
    return SlogdetResult(*_determinant(a, "slogdet", False)[1:])


def _determinant(a: Any, name: str, check_finite: bool) -> tuple[Array, Array, Array]:
    a = square(a, name)
    if a.shape[-1] == 0:
        real = np.empty(0, a.dtype).real.dtype
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        lead = a.shape[:-2]
        return ones(lead, dtype=wide), ones(lead, dtype=a.dtype), zeros(lead, dtype=real)
    return row("determinant", (a,), (bool(check_finite),), (2,), several=True)


def matrix_power(a: Any, n: int) -> Array:
    """Integer power of a square matrix, by repeated squaring; of the inverse where it is negative.

    Parameters
    ----------
    a : (..., N, N) array_like
    n : int

    Returns
    -------
    (..., N, N) Array

    Notes
    -----
    Cost: at most 2 log2(n) products.

    Examples
    --------
    >>> import pypto
    >>> pypto.linalg.matrix_power(pypto.eye(2) * 2, 3).tolist()
    [[8.0, 0.0], [0.0, 8.0]]
    """
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"matrix_power needs an integer exponent; got {n!r}") from None
    a = as_array(a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"matrix_power needs a square matrix; got shape {a.shape}")
    if n < 0:
        a, n = inv(a), -n
    if n == 0:
        return zeros(a.shape, dtype=a.dtype) + eye(a.shape[-1], dtype=a.dtype)
    power = None
    while True:
        if n & 1:
            power = a if power is None else matmul(power, a)
        n >>= 1
        if not n:
            return power
        a = matmul(a, a)


def multi_dot(arrays: Any) -> Array:
    """Product of several matrices in the order that takes the fewest flops; the first and the last may be vectors.

    Parameters
    ----------
    arrays : sequence of array_like

    Returns
    -------
    Array

    Notes
    -----
    Source: T. Cormen et al., Introduction to Algorithms, matrix-chain multiplication.

    Examples
    --------
    >>> import pypto
    >>> a, b, c = pypto.ones((2, 9)), pypto.ones((9, 3)), pypto.ones((3, 1))
    >>> pypto.linalg.multi_dot([a, b, c]).tolist()
    [[27.0], [27.0]]
    """
    chain = [as_array(a) for a in arrays]
    if len(chain) < 2:
        raise ValueError("multi_dot takes at least two arrays")
    first, last = chain[0].ndim == 1, chain[-1].ndim == 1
    if first:
        chain[0] = expand_dims(chain[0], 0)
    if last:
        chain[-1] = expand_dims(chain[-1], 1)
    for k, a in enumerate(chain):
        if a.ndim != 2 or (k and chain[k - 1].shape[1] != a.shape[0]):
            raise ValueError(f"multi_dot: array {k} of shape {a.shape} does not follow {chain[k - 1].shape}")
    whole = _product(chain, _splits([a.shape[0] for a in chain] + [chain[-1].shape[1]]), 0, len(chain) - 1)
    whole = whole[0] if first else whole
    return squeeze(whole, -1) if last else whole


def _splits(p: list[int]) -> dict[tuple[int, int], int]:
    """Return where the product of matrices i ... j, p[i] x p[i+1] each, is best parted."""
    n = len(p) - 1
    best = {(i, i): 0 for i in range(n)}
    at = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            costs = [(best[i, k] + best[k + 1, j] + p[i] * p[k + 1] * p[j + 1], k) for k in range(i, j)]
            best[i, j], at[i, j] = min(costs)
    return at


def _product(chain: list[Array], at: dict, i: int, j: int) -> Array:
    if i == j:
        return chain[i]
    return matmul(_product(chain, at, i, at[i, j]), _product(chain, at, at[i, j] + 1, j))


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Array:
    """Number of singular values above a tolerance.

    Parameters
    ----------
    A : (..., M, N) array_like
    tol : float, optional
        Absolute tolerance; default `rtol` times the largest singular value.
    hermitian : bool
        Accepted: the singular values of a Hermitian matrix are found as those of any other.
    rtol : float, optional
        Default max(M, N) times the rounding unit.

    Returns
    -------
    (...) Array of int64

    Notes
    -----
    Cost: a QR factorisation over all devices, and the singular values of its triangle on one.

    Examples
    --------
    >>> import pypto
    >>> int(pypto.linalg.matrix_rank(pypto.ones((3, 2))))
    1
    """
    if tol is not None and rtol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    a = inexact(A)
    if a.ndim < 2:
        return astype(FUNCTIONS["any"](a != 0), np.int64)
    s = singular_values(a)
    if tol is None:
        rtol = max(a.shape[-2:]) * np.finfo(a.dtype).eps if rtol is None else rtol
        tol = FUNCTIONS["max"](s, axis=-1, keepdims=True) * rtol if s.shape[-1] else 0.0
    elif np.ndim(tol):
        tol = expand_dims(as_array(tol), -1)
    return astype(FUNCTIONS["count_nonzero"](s > tol, axis=-1), np.int64)


def cond(x: Any, p: Any = None) -> Array:
    """Condition number ``||A|| ||A^-1||`` in a norm.

    Parameters
    ----------
    x : (..., M, N) array_like
        Square for orders other than 2 and -2.
    p : {None, 2, -2, 1, -1, inf, -inf, "fro", "nuc"}, optional
        None and 2: the ratio of the extreme singular values.

    Returns
    -------
    (...) Array

    Raises
    ------
    LinAlgError
        The array is empty.

    Notes
    -----
    Cost: the singular values, or an inverse. Estimates that cost next to nothing come with :func:`solve` (a warning) and
    :func:`refine`.

    Examples
    --------
    >>> import pypto
    >>> float(pypto.linalg.cond([[4.0, 0.0], [0.0, 2.0]]))
    2.0
    """
    a = matrix(x, "cond")
    if 0 in a.shape:
        raise np.linalg.LinAlgError("cond is not defined on empty arrays")
    if p is None or p in (2, -2):
        s = singular_values(a)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    a = square(a, "cond")
    axes = (-2, -1)
    return norm(a, p, axes) * norm(inv(a, check_finite=False), p, axes)


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Array:
    """Solve ``a x = b`` for x where the last axes of `a` are summed over.

    Parameters
    ----------
    a : array_like
        Of shape ``b.shape + Q`` with as many elements in Q as in `b`.
    b : array_like
    axes : sequence of int, optional
        Axes of `a` to move behind the others first.

    Returns
    -------
    Array
        Of shape Q.

    Examples
    --------
    >>> import pypto
    >>> a = pypto.eye(6).reshape((2, 3, 6))
    >>> pypto.linalg.tensorsolve(a, pypto.ones((2, 3))).shape
    (6,)
    """
    a, b = as_array(a), as_array(b)
    if axes is not None:
        front = [k for k in range(a.ndim) if k not in axes]
        a = a.transpose((*front, *axes))
    shape = a.shape[b.ndim :]
    if prod(shape) != b.size or prod(a.shape[: b.ndim]) != b.size:
        raise np.linalg.LinAlgError(f"Input arrays must satisfy prod(a.shape[b.ndim:]) == b.size; got {a.shape} and {b.shape}")
    return reshape(solve(reshape(a, (b.size, b.size)), reshape(b, (b.size,))), shape)
