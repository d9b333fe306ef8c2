"""Functions that arrange elements, and the matrix product: ``reshape``, slicing, ``concat``, ``matmul`` and the like."""

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from pypto.array.array import Array, apply, as_array
from pypto.ops.elementwise import broadcast_shapes

__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "concatenate",
    "copy",
    "expand_dims",
    "flatten",
    "flip",
    "getitem",
    "matmul",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "ravel",
    "reshape",
    "roll",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "transpose",
    "tril",
    "triu",
    "unstack",
]


def axis_index(axis: Any, ndim: int) -> int:
    """Return a non-negative axis number; numpy.exceptions.AxisError where there is no such axis."""
    a = operator.index(axis)
    if not -ndim <= a < ndim:
        raise np.exceptions.AxisError(a, ndim)
    return a % ndim


def axes_tuple(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return sorted non-negative axes; None stands for all."""
    if axis is None:
        return tuple(range(ndim))
    axes = [axis_index(a, ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ValueError(f"axis={axis} names an axis twice")
    return tuple(sorted(axes))


def getitem(x: Array, key: Any) -> Array:
    """``x[key]`` for integers, slices with any step, ``...`` and None."""
    keys = key if isinstance(key, tuple) else (key,)
    for k in keys:
        if not (k is None or k is Ellipsis or isinstance(k, slice) or _is_integer(k)):
            raise TypeError(f"an index of type {type(k).__name__} is not supported yet; use integers, slices, ... and None")
    given = sum(1 for k in keys if k is not None and k is not Ellipsis)
    if sum(1 for k in keys if k is Ellipsis) > 1:
        raise IndexError("an index can have only one ellipsis")
    if given > x.ndim:
        raise IndexError(f"too many indices: the array has {x.ndim} axes, {given} were indexed")
    cuts, shape = _cuts(x, keys, x.ndim - given)
    if any(first != 0 or step != 1 or n != extent for (first, step, n), extent in zip(cuts, x.shape, strict=True)):
        x = apply("slice", (x,), (tuple(cuts),))
    return _unit_axes(x, tuple(shape))


def _is_integer(k: Any) -> bool:
    if isinstance(k, (bool, np.bool_)) or (isinstance(k, np.ndarray) and k.ndim):
        return False
    return isinstance(k, (int, np.integer)) or (isinstance(k, Array) and k.ndim == 0 and k.dtype.kind in "iu")


def _cuts(x: Array, keys: tuple, missing: int) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Return (start, step, count) of every axis and the shape of the result."""
    if Ellipsis not in [k for k in keys if not isinstance(k, Array)]:
        keys = (*keys, Ellipsis)
    cuts: list[tuple[int, int, int]] = []
    shape: list[int] = []
    for k in keys:
        if k is None:
            shape.append(1)
        elif k is Ellipsis:
            for n in x.shape[len(cuts) : len(cuts) + missing]:
                cuts.append((0, 1, n))
                shape.append(n)
        elif isinstance(k, slice):
            r = range(*k.indices(x.shape[len(cuts)]))
            cuts.append((r.start if len(r) else 0, r.step if len(r) else 1, len(r)))
            shape.append(len(r))
        else:
            i, n = operator.index(k), x.shape[len(cuts)]
            if not -n <= i < n:
                raise IndexError(f"index {i} is out of bounds for axis {len(cuts)} with size {n}")
            cuts.append((i % n, 1, 1))
    return cuts, shape


def _unit_axes(x: Array, shape: tuple[int, ...]) -> Array:
    """Return `x` in a shape that differs by axes of length one only."""
    return x if x.shape == shape else apply("unit_axes", (x,), (shape,))


def reshape(x: Any, shape: int | Sequence[int], *more: int, order: str = "C", copy: bool | None = None) -> Array:
    """Return the elements, read in C order, in another shape; one extent may be -1.

    Parameters
    ----------
    x : array_like
    shape : int or sequence of int
    order : {"C"}
    copy : bool, optional
        Accepted; the result never aliases the operand.

    Notes
    -----
    Cost: at most one exchange of the whole array. Axes of length one appear and vanish for nothing.

    Examples
    --------
    >>> import pypto
    >>> pypto.arange(6).reshape(2, 3).shape
    (2, 3)
    """
    x = as_array(x)
    if order != "C":
        raise ValueError(f"order={order!r} is not supported; transpose before and after for Fortran order")
    new = [operator.index(n) for n in ((shape, *more) if isinstance(shape, (int, np.integer)) else shape)]
    if new.count(-1) > 1 or any(n < -1 for n in new):
        raise ValueError(f"shape {tuple(new)} may hold one -1 and no other negative number")
    if -1 in new:
        rest = prod(n for n in new if n != -1)
        if rest == 0 or x.size % rest:
            raise ValueError(f"an array of {x.size} elements cannot be reshaped to {tuple(new)}")
        new[new.index(-1)] = x.size // rest
    target = tuple(new)
    if x.shape == target:
        return x
    if [n for n in x.shape if n != 1] == [n for n in target if n != 1]:
        return _unit_axes(x, target)
    return apply("reshape", (x,), (target,))


def ravel(x: Any, order: str = "C") -> Array:
    """Return the elements, read in C order, as a one-dimensional array."""
    return reshape(x, (-1,) if as_array(x).size else (0,), order=order)


flatten = ravel


def copy(x: Any) -> Array:
    """Return the array itself: arrays never change, so that a copy could not be told from it."""
    return as_array(x)


def transpose(x: Any, *axes: Any) -> Array:
    """Return the array with its axes permuted (reversed by default). Nothing moves: the layout is permuted with them.

    Examples
    --------
    >>> import pypto
    >>> pypto.transpose(pypto.zeros((2, 3, 4)), [1, 0, 2]).shape
    (3, 2, 4)
    """
    x = as_array(x)
    if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)):
        axes = axes[0]
    if not axes:
        order = tuple(reversed(range(x.ndim)))
    else:
        order = tuple(axis_index(a, x.ndim) for a in axes)
        if sorted(order) != list(range(x.ndim)):
            raise ValueError(f"axes={tuple(axes)} is not a permutation of the {x.ndim} axes")
    return x if order == tuple(range(x.ndim)) else apply("transpose", (x,), (order,))


def permute_dims(x: Any, axes: Sequence[int]) -> Array:
    """Return the array with its axes permuted."""
    return transpose(x, tuple(axes))


def matrix_transpose(x: Any) -> Array:
    """Return the array with its last two axes exchanged."""
    return as_array(x).mT


def swapaxes(x: Any, axis1: int, axis2: int) -> Array:
    """Return the array with two axes exchanged."""
    x = as_array(x)
    order = list(range(x.ndim))
    i, j = axis_index(axis1, x.ndim), axis_index(axis2, x.ndim)
    order[i], order[j] = order[j], order[i]
    return transpose(x, tuple(order))


def moveaxis(x: Any, source: Any, destination: Any) -> Array:
    """Return the array with some axes moved to other places; the others keep their order."""
    x = as_array(x)
    src = [axis_index(a, x.ndim) for a in (source if isinstance(source, (tuple, list)) else (source,))]
    dst = [axis_index(a, x.ndim) for a in (destination if isinstance(destination, (tuple, list)) else (destination,))]
    if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
        raise ValueError(f"source={source} and destination={destination} must name as many distinct axes")
    order = [a for a in range(x.ndim) if a not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return transpose(x, tuple(order))


def expand_dims(x: Any, axis: int | tuple[int, ...] = 0) -> Array:
    """Return the array with axes of length one inserted."""
    x = as_array(x)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    places = axes_tuple(tuple(given), x.ndim + len(given))
    shape = list(x.shape)
    for a in places:
        shape.insert(a, 1)
    return _unit_axes(x, tuple(shape))


def squeeze(x: Any, axis: int | tuple[int, ...] | None = None) -> Array:
    """Return the array without axes of length one (those named, or all)."""
    x = as_array(x)
    axes = axes_tuple(axis, x.ndim) if axis is not None else tuple(a for a, n in enumerate(x.shape) if n == 1)
    for a in axes:
        if x.shape[a] != 1:
            raise ValueError(f"axis {a} has length {x.shape[a]}; only axes of length one can be squeezed")
    return _unit_axes(x, tuple(n for a, n in enumerate(x.shape) if a not in axes))


def broadcast_to(x: Any, shape: Sequence[int]) -> Array:
    """Return the array repeated to `shape` by NumPy's broadcasting rule."""
    x = as_array(x)
    target = tuple(operator.index(n) for n in shape)
    return x if x.shape == target else apply("broadcast_to", (x,), (target,))


def broadcast_arrays(*arrays: Any) -> list[Array]:
    """Return the arrays broadcast against each other."""
    made = [as_array(a) for a in arrays]
    shape = broadcast_shapes(*(a.shape for a in made))
    return [broadcast_to(a, shape) for a in made]


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Array:
    """Join arrays along an axis (flattened where it is None).

    Examples
    --------
    >>> import pypto
    >>> pypto.concat([pypto.zeros((2, 3)), pypto.ones((1, 3))]).shape
    (3, 3)
    """
    made = [as_array(a) for a in arrays]
    if not made:
        raise ValueError("concat needs at least one array")
    if axis is None:
        made, axis = [ravel(a) for a in made], 0
    if len({a.ndim for a in made}) != 1 or made[0].ndim == 0:
        raise ValueError(f"concat needs arrays of one and the same positive number of axes; got {[a.shape for a in made]}")
    return apply("concat", tuple(made), (axis_index(axis, made[0].ndim),))


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Array:
    """NumPy's name for :func:`concat`."""
    return concat(arrays, axis=axis)


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Array:
    """Join arrays of one shape along a new axis."""
    made = [as_array(a) for a in arrays]
    if not made:
        raise ValueError("stack needs at least one array")
    if len({a.shape for a in made}) != 1:
        raise ValueError(f"stack needs arrays of one shape; got {[a.shape for a in made]}")
    place = axis_index(axis, made[0].ndim + 1)
    return concat([expand_dims(a, place) for a in made], axis=place)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Split an array into its slices along an axis, which vanishes."""
    x = as_array(x)
    place = axis_index(axis, x.ndim)
    return tuple(x[(slice(None),) * place + (i,)] for i in range(x.shape[place]))


def split(x: Any, sections_or_indices: int | Sequence[int], axis: int = 0) -> list[Array]:
    """Split an array into equal parts, or before the given indices, along an axis.

    Examples
    --------
    >>> import pypto
    >>> [p.shape for p in pypto.split(pypto.zeros(7), [2, 5])]
    [(2,), (3,), (2,)]
    """
    x = as_array(x)
    place = axis_index(axis, x.ndim)
    n = x.shape[place]
    if isinstance(sections_or_indices, (int, np.integer)):
        parts = int(sections_or_indices)
        if parts < 1 or n % parts:
            raise ValueError(f"an axis of length {n} cannot be split into {parts} equal parts")
        bounds = [k * (n // parts) for k in range(parts + 1)]
    else:
        bounds = [0, *(operator.index(i) for i in sections_or_indices), n]
    lead = (slice(None),) * place
    return [x[(*lead, slice(a, b))] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def flip(x: Any, /, *, axis: int | tuple[int, ...] | None = None) -> Array:
    """Reverse the order of elements along axes (all by default)."""
    x = as_array(x)
    axes = axes_tuple(axis, x.ndim)
    return x[tuple(slice(None, None, -1) if a in axes else slice(None) for a in range(x.ndim))]


def roll(x: Any, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Array:
    """Shift elements along axes; what leaves at one end enters at the other."""
    x = as_array(x)
    if axis is None:
        return reshape(roll(ravel(x), shift, axis=0), x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"shift={shift} and axis={axis} must have the same length")
    for a, s in zip(axes, shifts, strict=True):
        place = axis_index(a, x.ndim)
        k = s % x.shape[place] if x.shape[place] else 0
        if k:
            lead = (slice(None),) * place
            x = concat([x[(*lead, slice(-k, None))], x[(*lead, slice(None, -k))]], axis=place)
    return x


def tril(x: Any, k: int = 0) -> Array:
    """Return the lower triangle of the last two axes: elements above diagonal `k` are zero."""
    return apply("tril", (as_array(x),), (operator.index(k),))


def triu(x: Any, k: int = 0) -> Array:
    """Return the upper triangle of the last two axes: elements below diagonal `k` are zero."""
    return apply("triu", (as_array(x),), (operator.index(k),))


def matmul(x1: Any, x2: Any) -> Array:
    """Matrix product, with NumPy's rules for vectors and for leading batch axes.

    Parameters
    ----------
    x1, x2 : array_like
        Any layouts and dtypes. Conjugations and transpositions of operands are folded into the product.

    Returns
    -------
    Array

    Raises
    ------
    ValueError
        Shapes that do not match.

    Notes
    -----
    Cost: 2 m n k flops over all ranks (8 for complex). The variant (stationary C, A or B, or split along the inner
    dimension) is chosen by the bytes that it moves; transfer overlaps with arithmetic.
    Source: R. A. van de Geijn, J. Watts, SUMMA: scalable universal matrix multiplication algorithm (1997); M. Schatz,
    R. van de Geijn, J. Poulson, Parallel matrix multiplication: a systematic journey (2016).

    Examples
    --------
    >>> import pypto
    >>> float((pypto.ones((2, 5)) @ pypto.ones((5, 3)))[0, 0])
    5.0
    """
    a, b = as_array(x1), as_array(x2)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError("matmul needs operands with at least one axis; multiply by a scalar with *")
    a_vector, b_vector = a.ndim == 1, b.ndim == 1
    if a_vector:
        a = expand_dims(a, 0)
    if b_vector:
        b = expand_dims(b, 1)
    a, conj_a = _without_conj(a)
    b, conj_b = _without_conj(b)
    out = apply("matmul", (a, b), (conj_a, conj_b))
    if a_vector:
        out = squeeze(out, -2)
    if b_vector:
        out = squeeze(out, -1)
    return out


def _without_conj(a: Array) -> tuple[Array, bool]:
    """Return an operand without the conjugation that may be on it, under a transposition too, and whether it was there."""
    node = a._node
    if node.value is None and node.op.name == "conj":
        return Array(node.inputs[0]), node.dtype.kind == "c"
    if node.value is None and node.op.name == "transpose":
        inner = node.inputs[0]
        if inner.value is None and inner.op.name == "conj":
            return apply("transpose", (Array(inner.inputs[0]),), node.attrs), node.dtype.kind == "c"
    return a, False
