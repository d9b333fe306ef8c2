"""Functions that make arrays."""

import operator
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import numpy as np

from pypto.array.array import Array, as_array, build
from pypto.array.elementwise import astype
from pypto.dtypes import checked
from pypto.ops.opdef import table
from pypto.run import context as _context

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_function",
    "from_local",
    "full",
    "full_like",
    "identity",
    "linspace",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]


def _shape(shape: Any) -> tuple[int, ...]:
    extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    result = tuple(operator.index(n) for n in extents)
    if any(n < 0 for n in result):
        raise ValueError(f"shape {result} has a negative extent")
    return result


def _create(name: str, shape: tuple[int, ...], dtype: np.dtype, attrs: tuple, distribution: Any) -> Array:
    context = _context.current()
    context.env.layout(shape, distribution)  # a wrong distribution raises here
    return Array(build(table[name], (), (shape, dtype, *attrs, distribution), context))


def asarray(x: Any, dtype: Any = None, *, distribution: Any = None, copy: bool | None = None) -> Array:
    """Make an Array of a NumPy array, a nested sequence or a scalar.

    Parameters
    ----------
    x : array_like
        The same on every rank of an SPMD program. It is captured now: later changes do not show.
    dtype : dtype, optional
    distribution : str or Distribution, optional
        How to spread it over the devices.
    copy : bool, optional
        ``False`` is an error for anything but an Array, since the parts are always copied.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        Object, text or other dtypes that hold no numbers.

    Notes
    -----
    Cost: each rank copies its own part; nothing is communicated, except from a driving process to its workers.

    Examples
    --------
    >>> import pypto
    >>> pypto.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if isinstance(x, Array):
        out = x if dtype is None else astype(x, dtype)
        return out if distribution is None else out.repartition(distribution)
    if copy is False:
        raise ValueError("copy=False is not possible: a distributed array holds parts of its own")
    if dtype is not None:
        x = np.asarray(x, dtype=checked(dtype))
    return as_array(x, dist=distribution)


def from_local(part: Any, shape: Sequence[int], distribution: Any = "row", dtype: Any = None) -> Array:
    """Make an array of parts that the ranks hold already.

    Parameters
    ----------
    part : array_like
        This rank's part, of the shape that the layout gives it. A driving process passes a list with one part per device.
    shape : sequence of int
        Shape of the whole array.
    distribution : str or Distribution
    dtype : dtype, optional
        Default: that of the part.

    Raises
    ------
    ValueError
        A part whose shape does not fit; on every rank.

    Examples
    --------
    >>> import numpy as np, pypto
    >>> pypto.from_local(np.ones((2, 3)), (2, 3)).shape
    (2, 3)
    """
    context = _context.current()
    layout = context.env.layout(_shape(shape), distribution)
    if context.engine.remote:
        part = [np.asarray(p) for p in part]
        kind = np.result_type(*part) if dtype is None else dtype
    else:
        part = np.asarray(part)
        kind = part.dtype if dtype is None else dtype
    return Array(context.put_local(part, layout, kind))


def from_function(
    function: Callable[..., Any], shape: Sequence[int], dtype: Any = np.float64, *, distribution: Any = None
) -> Array:
    """Make an array whose elements are a function of their indices, so that nobody ever holds the whole.

    Parameters
    ----------
    function : callable
        ``function(i, j, ...)`` gets one open index array (int64) per axis, that broadcast to the block asked for, and
        returns the block. It is called once on each rank that holds a block.
    shape : sequence of int
    dtype : dtype
        Of the array; the block is cast to it.
    distribution : str or Distribution, optional

    Returns
    -------
    Array

    Raises
    ------
    Exception
        What the function raises on any rank is raised on every rank, when the array is computed.

    Examples
    --------
    >>> import pypto
    >>> hilbert = pypto.from_function(lambda i, j: 1 / (i + j + 1), (4, 4))
    >>> float(hilbert[1, 2])
    0.25
    """
    if not callable(function):
        raise TypeError(f"from_function takes a function of the indices first; got {type(function).__name__}")
    return _create("from_function", _shape(shape), checked(dtype), (function,), distribution)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, distribution: Any = None) -> Array:
    """Make an array of one value.

    Examples
    --------
    >>> import pypto
    >>> pypto.full(2, 7).tolist()
    [7, 7]
    """
    if isinstance(fill_value, Array):
        fill_value = fill_value.item()
    if np.ndim(fill_value):
        raise ValueError(f"fill_value must be a scalar; got shape {np.shape(fill_value)}")
    kind = checked(np.asarray(fill_value).dtype if dtype is None else dtype)
    if type(fill_value) is int:
        np.asarray(fill_value, kind)  # OverflowError where the dtype cannot hold it
    with np.errstate(invalid="ignore"):
        value = np.full((), fill_value, dtype=kind).item()
    return _create("full", _shape(shape), kind, (value,), distribution)


def zeros(shape: Any, dtype: Any = np.float64, *, distribution: Any = None) -> Array:
    """Make an array of zeros."""
    return full(shape, 0, dtype=dtype or np.float64, distribution=distribution)


def ones(shape: Any, dtype: Any = np.float64, *, distribution: Any = None) -> Array:
    """Make an array of ones."""
    return full(shape, 1, dtype=dtype or np.float64, distribution=distribution)


def empty(shape: Any, dtype: Any = np.float64, *, distribution: Any = None) -> Array:
    """Make an array of zeros: with values that are never assigned in place, uninitialised memory serves nobody."""
    return zeros(shape, dtype, distribution=distribution)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None) -> Array:
    """Make an array of one value with the shape and dtype of another."""
    x = as_array(x)
    return full(x.shape, fill_value, dtype=dtype or x.dtype)


def zeros_like(x: Any, /, *, dtype: Any = None) -> Array:
    """Make an array of zeros with the shape and dtype of another."""
    return full_like(x, 0, dtype=dtype)


def ones_like(x: Any, /, *, dtype: Any = None) -> Array:
    """Make an array of ones with the shape and dtype of another."""
    return full_like(x, 1, dtype=dtype)


empty_like = zeros_like


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = np.float64, distribution: Any = None) -> Array:
    """Make a matrix with ones on diagonal `k`.

    Examples
    --------
    >>> import pypto
    >>> pypto.eye(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    shape = _shape((n_rows, n_rows if n_cols is None else n_cols))
    return _create("eye", shape, checked(dtype or np.float64), (operator.index(k),), distribution)


identity = eye


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, distribution: Any = None
) -> Array:
    """Make the numbers from `start` up to, without, `stop`.

    Notes
    -----
    As in NumPy ``arange(4096, 4096)`` is empty; a matrix of consecutive numbers is ``arange(4096 * 4096).reshape(4096, 4096)``.

    Examples
    --------
    >>> import pypto
    >>> pypto.arange(2, 8, 3).tolist()
    [2, 5]
    """
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("arange needs a step other than zero")
    start, stop, step = (v.item() if isinstance(v, (np.generic, Array)) else v for v in (start, stop, step))
    n = max(0, ceil((stop - start) / step))
    kind = checked(np.result_type(*(np.asarray(v).dtype for v in (start, stop, step))) if dtype is None else dtype)
    if kind.kind == "b" and n > 2:
        raise TypeError(f"arange has no booleans beyond False and True; {n} were asked for")
    return _create("arange", (n,), kind, (start, step), distribution)


def linspace(
    start: Any, stop: Any, /, num: int = 50, *, dtype: Any = None, endpoint: bool = True, distribution: Any = None
) -> Array:
    """Make `num` evenly spaced numbers from `start` to `stop`.

    Examples
    --------
    >>> import pypto
    >>> pypto.linspace(0, 1, 3).tolist()
    [0.0, 0.5, 1.0]
    """
    n = operator.index(num)
    if n < 0:
        raise ValueError(f"num={num} must not be negative")
    start, stop = (v.item() if isinstance(v, (np.generic, Array)) else v for v in (start, stop))
    kind = checked(np.result_type(np.asarray(start).dtype, np.asarray(stop).dtype, np.float64) if dtype is None else dtype)
    return _create("linspace", (n,), kind, (start, stop, n - 1 if endpoint else n, bool(endpoint)), distribution)
