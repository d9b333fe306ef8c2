"""What users write behind a dot, or between two arrays: NumPy's functions as methods and operators of :class:`Array`."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from pypto.array import elementwise, manipulation
from pypto.array.array import SCALARS, Array, apply, binary, unary
from pypto.ops.elementwise import BINARY, UNARY

__all__: list[str] = []

_UFUNCS = {u: n for n, u in {**UNARY, **BINARY}.items()}


def _operator(name: str, reflected: bool) -> Callable[..., Any]:
    def method(self, other):
        if type(other) is not Array and type(other) not in SCALARS and not isinstance(other, (np.ndarray, np.generic, Array)):
            return NotImplemented
        return binary(name, other, self) if reflected else binary(name, self, other)

    return method


def _unary_operator(name: str) -> Callable[..., Any]:
    return lambda self: apply(name, (self,))


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self, *args: Any, **kwargs: Any):
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"Same as :func:`pypto.{name}` of this array."
    return method


def _product(self, other):
    return manipulation.matmul(self, other) if _operand(other) else NotImplemented


def _reflected_product(self, other):
    return manipulation.matmul(other, self) if _operand(other) else NotImplemented


def _operand(x: Any) -> bool:
    return isinstance(x, (Array, np.ndarray, np.generic, list, tuple))


def _ufunc(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any):
    if method != "__call__" or kwargs:
        return NotImplemented
    if ufunc is np.matmul:
        return manipulation.matmul(*inputs)
    name = _UFUNCS.get(ufunc)
    if name is None:
        return NotImplemented
    return binary(name, *inputs) if ufunc.nin == 2 else unary(name, *inputs)


def _namespace(self, *, api_version: str | None = None):
    return sys.modules["pypto"]


_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
_COMPARISONS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
_UNARIES = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}
_REDUCTIONS = ("sum", "prod", "max", "min", "all", "any", "argmax", "argmin")
_ELEMENTWISE = ("mean", "var", "std", "astype", "round", "clip")
_ARRANGING = ("reshape", "transpose", "squeeze", "ravel", "flatten", "copy", "swapaxes")

for _python, _name in _OPERATORS.items():
    setattr(Array, f"__{_python}__", _operator(_name, False))
    setattr(Array, f"__r{_python}__", _operator(_name, True))
    setattr(Array, f"__i{_python}__", _operator(_name, False))
for _python, _name in _COMPARISONS.items():
    setattr(Array, f"__{_python}__", _operator(_name, False))
for _python, _name in _UNARIES.items():
    setattr(Array, f"__{_python}__", _unary_operator(_name))
for _name in _REDUCTIONS:
    setattr(Array, _name, _method(_name, elementwise.FUNCTIONS[_name]))
for _name in _ELEMENTWISE:
    setattr(Array, _name, _method(_name, getattr(elementwise, _name)))
for _name in _ARRANGING:
    setattr(Array, _name, _method(_name, getattr(manipulation, _name)))
for _name, _function in {
    "__getitem__": manipulation.getitem,
    "__matmul__": _product,
    "__rmatmul__": _reflected_product,
    "__array_ufunc__": _ufunc,
    "__array_namespace__": _namespace,
    "__hash__": object.__hash__,  # identity: equality is elementwise
}.items():
    setattr(Array, _name, _function)
