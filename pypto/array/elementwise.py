"""Elementwise functions and reductions, by NumPy's and the array API standard's names."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pypto.array.array import Array, apply, as_array, binary, unary
from pypto.array.manipulation import axes_tuple
from pypto.dtypes import checked
from pypto.graph.graph import user_line
from pypto.incidents import tell
from pypto.ops.elementwise import BINARY, UNARY

__all__ = ["ALIASES", "FUNCTIONS", "astype", "clip", "imag", "isclose", "mean", "real", "round", "std", "var", "where"]

#: NumPy's other names.
ALIASES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "bitwise_not": "bitwise_invert",
    "conjugate": "conj",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "mod": "remainder",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "true_divide": "divide",
}
FUNCTIONS: dict[str, Callable[..., Any]] = {}

_UNARY_DOC = """{summary}

Parameters
----------
x : array_like
    Any shape, layout and dtype that NumPy's ``{ufunc}`` takes. A Python scalar gives a Python scalar.

Returns
-------
Array
    Same shape and layout; dtype as NumPy's.

Raises
------
TypeError
    A dtype for which the function is not defined.

Notes
-----
Cost: one pass over the local parts, no communication. Source: :data:`numpy.{ufunc}`.

Examples
--------
>>> import numpy as np, pypto
>>> x = pypto.asarray({sample})
>>> bool(np.array_equal(np.asarray(pypto.{name}(x)), np.{ufunc}({sample}), equal_nan=True))
True
"""
_BINARY_DOC = """{summary}

Parameters
----------
x1, x2 : array_like or scalar
    Broadcast against each other. Python scalars promote weakly, as in NumPy; two of them give a Python scalar.

Returns
-------
Array
    In the layout of the first operand that has the full shape; the other operand is moved to it.

Raises
------
ValueError
    Shapes that do not broadcast.
TypeError
    Dtypes for which the function is not defined.

Notes
-----
Cost: one pass over the local parts; no communication where the layouts agree. Source: :data:`numpy.{ufunc}`.

Examples
--------
>>> import numpy as np, pypto
>>> x, y = np.array([3, 5, 6]), np.array([2, 5, 1])
>>> bool(np.array_equal(np.asarray(pypto.{name}(pypto.asarray(x{cast}), y{cast})), np.{ufunc}(x{cast}, y{cast})))
True
"""
_INTEGER_ONLY = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")


def _summary(ufunc: np.ufunc) -> str:
    lines = (ufunc.__doc__ or "").split("\n\n")
    text = " ".join(lines[1].split()) if len(lines) > 1 else ufunc.__name__
    return text.split(". ")[0].rstrip(".") + ", element by element."


def _make_unary(name: str, ufunc: np.ufunc) -> Callable[..., Any]:
    def function(x: Any, /) -> Any:
        if type(x) in (bool, int, float, complex):
            return ufunc(x).item()
        return unary(name, x)

    sample = "np.array([1, 2])" if name == "bitwise_invert" else "np.array([0.25, 1.0])"
    function.__doc__ = _UNARY_DOC.format(summary=_summary(ufunc), ufunc=ufunc.__name__, name=name, sample=sample)
    function.__name__ = function.__qualname__ = name
    return function


def _make_binary(name: str, ufunc: np.ufunc) -> Callable[..., Any]:
    scalars = (bool, int, float, complex)

    def function(x1: Any, x2: Any, /) -> Any:
        if type(x1) in scalars and type(x2) in scalars:
            return ufunc(x1, x2).item()
        return binary(name, x1, x2)

    cast = "" if name in _INTEGER_ONLY else " * 1.0"
    function.__doc__ = _BINARY_DOC.format(summary=_summary(ufunc), ufunc=ufunc.__name__, name=name, cast=cast)
    function.__name__ = function.__qualname__ = name
    return function


for _name, _ufunc in UNARY.items():
    FUNCTIONS[_name] = _make_unary(_name, _ufunc)
for _name, _ufunc in BINARY.items():
    FUNCTIONS[_name] = _make_binary(_name, _ufunc)

_REDUCTION_DOC = """{summary}

Parameters
----------
x : array_like
axis : int or tuple of int, optional
    Axes to reduce; all of them by default.
{dtype}keepdims : bool
    Keep the reduced axes with length one.

Returns
-------
Array

Notes
-----
Cost: one pass over the local parts and one reduction of the result among the ranks that share it.
Source: :func:`numpy.{name}`.

Examples
--------
>>> import numpy as np, pypto
>>> x = np.arange(1.0, 7.0).reshape(2, 3)
>>> bool(np.array_equal(np.asarray(pypto.{name}(pypto.asarray(x), axis=0)), np.{name}(x, axis=0)))
True
"""
_REDUCTION_TEXT = {
    "sum": "Sum of the elements.",
    "prod": "Product of the elements.",
    "max": "Largest element; NaN propagates.",
    "min": "Smallest element; NaN propagates.",
    "all": "Whether all elements are true.",
    "any": "Whether any element is true.",
    "count_nonzero": "Number of elements that are not zero.",
}


def _make_reduction(name: str) -> Callable[..., Any]:
    def function(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Array:
        x = as_array(x)
        return apply(name, (x,), (axes_tuple(axis, x.ndim), bool(keepdims), None))

    def accumulating(x: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        x = as_array(x)
        asked = None if dtype is None else checked(dtype)
        return apply(name, (x,), (axes_tuple(axis, x.ndim), bool(keepdims), asked))

    def positional(x: Any, /, axis: Any = None, keepdims: bool = False) -> Array:
        return function(x, axis=axis, keepdims=keepdims)

    made = accumulating if name in ("sum", "prod") else positional
    dtype = "dtype : dtype, optional\n    Of the accumulation and the result.\n" if made is accumulating else ""
    made.__doc__ = _REDUCTION_DOC.format(summary=_REDUCTION_TEXT[name], name=name, dtype=dtype)
    made.__name__ = made.__qualname__ = name
    return made


for _name in _REDUCTION_TEXT:
    FUNCTIONS[_name] = _make_reduction(_name)


def _index_of(name: str, x: Any, axis: int | None, keepdims: bool) -> Array:
    x = as_array(x)
    return apply(name, (x,), (axes_tuple(axis, x.ndim), bool(keepdims), None))


def argmax(x: Any, /, axis: int | None = None, keepdims: bool = False) -> Array:
    """Index of the first largest element along an axis, or in C order over all; NaN counts as largest.

    Examples
    --------
    >>> import pypto
    >>> int(pypto.argmax(pypto.asarray([1, 5, 3, 5])))
    1
    """
    return _index_of("argmax", x, axis, keepdims)


def argmin(x: Any, /, axis: int | None = None, keepdims: bool = False) -> Array:
    """Index of the first smallest element along an axis, or in C order over all; NaN counts as smallest.

    Examples
    --------
    >>> import pypto
    >>> int(pypto.argmin(pypto.asarray([4, 1, 3, 1])))
    1
    """
    return _index_of("argmin", x, axis, keepdims)


FUNCTIONS["argmax"], FUNCTIONS["argmin"] = argmax, argmin


def mean(x: Any, /, axis: Any = None, keepdims: bool = False) -> Array:
    """Arithmetic mean; integers give float64.

    Examples
    --------
    >>> import pypto
    >>> float(pypto.mean(pypto.asarray([1.0, 2.0, 6.0])))
    3.0
    """
    x = as_array(x)
    if x.dtype.kind in "biu":
        x = astype(x, np.float64)
    axes = axes_tuple(axis, x.ndim)
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    total = FUNCTIONS["sum"](x, axis=axes, keepdims=keepdims)
    return total / (count if count else float("nan"))


def var(x: Any, /, axis: Any = None, correction: float = 0, keepdims: bool = False, ddof: float | None = None) -> Array:
    """Variance: the mean squared distance from the mean, in two passes, divided by ``count - correction``.

    Examples
    --------
    >>> import pypto
    >>> float(pypto.var(pypto.asarray([1.0, 3.0])))
    1.0
    """
    x = as_array(x)
    axes = axes_tuple(axis, x.ndim)
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    away = FUNCTIONS["abs"](x - mean(x, axis=axes, keepdims=True))
    divisor = count - (correction if ddof is None else ddof)
    return FUNCTIONS["sum"](away * away, axis=axes, keepdims=keepdims) / (divisor if divisor > 0 else float("nan"))


def std(x: Any, /, axis: Any = None, correction: float = 0, keepdims: bool = False, ddof: float | None = None) -> Array:
    """Standard deviation: the square root of :func:`var`.

    Examples
    --------
    >>> import pypto
    >>> float(pypto.std(pypto.asarray([1.0, 3.0])))
    1.0
    """
    return FUNCTIONS["sqrt"](var(x, axis=axis, correction=correction, keepdims=keepdims, ddof=ddof))


def where(condition: Any, x1: Any, x2: Any, /) -> Array:
    """Elements of `x1` where `condition` holds, of `x2` elsewhere.

    Parameters
    ----------
    condition, x1, x2 : array_like or scalar
        Broadcast against each other.

    Examples
    --------
    >>> import pypto
    >>> pypto.where(pypto.asarray([True, False]), 1, 2).tolist()
    [1, 2]
    """
    arrays, scalars = [as_array(condition)], []
    for position, x in ((1, x1), (2, x2)):
        if type(x) in (bool, int, float, complex):
            scalars.append((position, x))
        else:
            arrays.append(as_array(x, arrays[0]._node.context))
    return apply("where", tuple(arrays), tuple(scalars))


def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Array:
    """Return the array in another dtype."""
    x = as_array(x)
    target = checked(dtype)
    if x.dtype.kind == "c" and target.kind in "iuf":
        tell(np.exceptions.ComplexWarning("Casting complex values to real discards the imaginary part"), user_line())
    return x if x.dtype == target else apply("astype", (x,), (target.str,))


def real(x: Any, /) -> Array:
    """Real part."""
    return as_array(x).real


def imag(x: Any, /) -> Array:
    """Imaginary part."""
    return as_array(x).imag


def round(x: Any, /, decimals: int = 0) -> Array:
    """Round to a number of decimals, halves to even."""
    if type(x) in (bool, int, float, complex):
        return np.round(x, decimals).item()
    return apply("round", (as_array(x),), (int(decimals),))


def clip(x: Any, /, min: Any = None, max: Any = None) -> Array:
    """Limit the elements to an interval; None leaves that side open."""
    x = as_array(x)
    if x.dtype.kind in "iu":  # a bound beyond what the dtype holds binds nothing
        kind = np.iinfo(x.dtype)
        min = None if type(min) is int and min <= kind.min else min
        max = None if type(max) is int and max >= kind.max else max
    if min is not None:
        x = binary("maximum", x, min)
    if max is not None:
        x = binary("minimum", x, max)
    return x


def _inexact(x: Any) -> Array:
    """Return an operand of a comparison of sizes: integers and booleans as float64, so that no difference overflows."""
    x = as_array(float(x) if type(x) in (bool, int) else x)
    return astype(x, np.float64) if x.dtype.kind in "biu" else x


def isclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Whether elements are equal to within ``atol + rtol * |y|``; infinities must be equal."""
    x, y = _inexact(x), _inexact(y)
    near = (FUNCTIONS["abs"](x - y) <= FUNCTIONS["abs"](y) * rtol + atol) & FUNCTIONS["isfinite"](y)
    near = near | (x == y)
    return near | (FUNCTIONS["isnan"](x) & FUNCTIONS["isnan"](y)) if equal_nan else near
