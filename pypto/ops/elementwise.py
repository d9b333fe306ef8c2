"""Elementwise operators: NumPy's ufuncs, ``where``, ``astype``, real and imaginary parts, triangles."""

from functools import lru_cache
from math import prod

import numpy as np

from pypto.dtypes import checked
from pypto.layout.layout import Layout
from pypto.ops.opdef import Env, register, restrict
from pypto.tiles.tiled import TiledArray, World

__all__ = ["BINARY", "UNARY", "broadcast_shapes"]

UNARY = {
    "abs": np.absolute,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "bitwise_invert": np.invert,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "conj": np.conjugate,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "floor": np.floor,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "logical_not": np.logical_not,
    "negative": np.negative,
    "positive": np.positive,
    "reciprocal": np.reciprocal,
    "rint": np.rint,
    "sign": np.sign,
    "signbit": np.signbit,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
BINARY = {
    "add": np.add,
    "atan2": np.arctan2,
    "bitwise_and": np.bitwise_and,
    "bitwise_left_shift": np.left_shift,
    "bitwise_or": np.bitwise_or,
    "bitwise_right_shift": np.right_shift,
    "bitwise_xor": np.bitwise_xor,
    "copysign": np.copysign,
    "divide": np.true_divide,
    "equal": np.equal,
    "floor_divide": np.floor_divide,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "hypot": np.hypot,
    "less": np.less,
    "less_equal": np.less_equal,
    "logaddexp": np.logaddexp,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "nextafter": np.nextafter,
    "not_equal": np.not_equal,
    "pow": np.power,
    "remainder": np.remainder,
    "subtract": np.subtract,
}


@lru_cache(maxsize=4096)
def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's broadcasting of shapes; ValueError where they do not match."""
    return np.broadcast_shapes(*shapes)


def place_elementwise(env: Env, layouts: list[Layout], out_shape: tuple[int, ...], attrs: tuple):
    """The first distributed operand of full shape keeps its layout; the others come to it."""
    best = None
    for layout in layouts:
        if layout.shape == out_shape and not layout.partial and (best is None or _spread(layout) > _spread(best)):
            best = layout
    if best is None:
        best = env.layout(out_shape)
    return tuple(restrict(best, layout.shape) for layout in layouts), best


def _spread(layout: Layout) -> bool:
    """Return whether some axis is divided: such an operand is dearer to move than a replicated one."""
    return any(d is not None for d in layout.dims)


def _finish(result, operands: list[TiledArray], layout: Layout, world: World) -> TiledArray:
    """Wrap a local result, in the layout's storage order."""
    result = np.asarray(result)
    if all(o.layout is layout or o.layout == layout for o in operands) or result.size < 2:
        return TiledArray(layout, result, world)
    out = TiledArray.empty(layout, result.dtype, world)
    out.local[...] = result
    return out


def _operands(ins: list[TiledArray], scalars: tuple) -> list:
    """Put Python scalars, kept as (position, value), back between the local parts."""
    args = [a.local for a in ins]
    for position, value in scalars:
        args.insert(position, value)
    return args


# ufuncs: attributes are the Python scalars among the operands, as ((position, value), ...)


_BOOL = np.dtype(bool)


@lru_cache(maxsize=4096)
def _try_integer(ufunc: np.ufunc, dtype: np.dtype, position: int, value: int) -> None:
    """Raise now what NumPy raises of a Python integer whatever the array holds: OverflowError, ValueError of 2 ** -1."""
    with np.errstate(all="ignore"):
        one = np.ones(1, dtype)
        ufunc(one, value) if position else ufunc(value, one)


@lru_cache(maxsize=8192)
def _resolve(ufunc: np.ufunc, dtypes: tuple) -> np.dtype:
    return checked(ufunc.resolve_dtypes((*dtypes, None))[-1])


def _infer_ufunc(ufunc: np.ufunc, name: str):
    nin = ufunc.nin

    def infer(shapes, dtypes, attrs):
        if len(dtypes) == nin:
            shape = shapes[0] if nin == 1 or shapes[0] == shapes[1] else broadcast_shapes(*shapes)
            return shape, _resolve(ufunc, tuple(dtypes))
        (position, value), *_ = attrs
        pair = list(dtypes)
        pair.insert(position, _BOOL if type(value) is bool else type(value))
        if type(value) is int and dtypes[0].kind in "biu" and (position or name != "pow"):
            _try_integer(ufunc, dtypes[0], position, value)
        return shapes[0], _resolve(ufunc, tuple(pair))

    return infer


def _run_ufunc(ufunc: np.ufunc):
    def run(world, ins, layout, attrs, dtype):
        if attrs:
            args = _operands(ins, attrs)
        else:
            args = [a.local for a in ins]
        if len(ins) > 1 and ins[0].layout is not ins[-1].layout and ins[0].layout != ins[-1].layout:
            out = TiledArray.empty(layout, dtype, world)
            ufunc(*args, out=out.local)
            return out
        return _finish(ufunc(*args), ins, layout, world)

    return run


def _flops_elementwise(shapes, out_shape, attrs) -> int:
    return prod(out_shape)


for _name, _ufunc in {**UNARY, **BINARY}.items():
    register(
        name=_name,
        infer=_infer_ufunc(_ufunc, _name),
        place=place_elementwise,
        run=_run_ufunc(_ufunc),
        cost=_flops_elementwise,
        any_order=True,
        local=True,
        family="elementwise",
    )


def _local_op(name, infer, kernel, cost=_flops_elementwise):
    """Register an operator whose result is ``kernel(local parts, attrs)``, element by element."""

    def run(world, ins, layout, attrs, dtype):
        out = TiledArray.empty(layout, dtype, world)
        out.local[...] = kernel([a.local for a in ins], attrs)
        return out

    register(
        name=name, infer=infer, place=place_elementwise, run=run, cost=cost, any_order=True, local=True, family="elementwise"
    )


def _real_dtype(shapes, dtypes, attrs):
    return shapes[0], np.empty(0, dtypes[0]).real.dtype


_local_op("real", _real_dtype, lambda a, attrs: a[0].real)
_local_op("imag", _real_dtype, lambda a, attrs: a[0].imag)


def _astype(local: np.ndarray, target: np.dtype) -> np.ndarray:
    if local.dtype.kind == "c" and target.kind in "iuf":
        local = local.real  # that the imaginary part is lost was said when the node was built
    return local.astype(target)


_local_op("astype", lambda s, d, attrs: (s[0], np.dtype(attrs[0])), lambda a, attrs: _astype(a[0], np.dtype(attrs[0])))
_local_op(
    "round", lambda s, d, attrs: (s[0], np.round(np.zeros(1, d[0]), attrs[0]).dtype), lambda a, attrs: np.round(a[0], attrs[0])
)


def _infer_where(shapes, dtypes, attrs):
    """where(condition, x, y); attributes are the Python scalars among x and y."""
    kinds = list(dtypes[1:])
    for position, value in attrs:
        kinds.insert(position - 1, value)
    dtype = checked(np.result_type(*kinds))
    for _, value in attrs:
        if type(value) is int and dtype.kind in "iu":
            np.asarray(value, dtype)  # OverflowError where the dtype cannot hold it
    return broadcast_shapes(*shapes), dtype


def _run_where(world, ins, layout, attrs, dtype):
    out = TiledArray.empty(layout, dtype, world)
    condition, x, y = _operands(ins, attrs)
    out.local[...] = y
    np.copyto(out.local, x, where=condition.astype(bool, copy=False), casting="unsafe")
    return out


register(
    name="where",
    infer=_infer_where,
    place=place_elementwise,
    run=_run_where,
    cost=_flops_elementwise,
    any_order=True,
    local=True,
    family="elementwise",
)


def _run_triangle(lower: bool):
    """Zero the elements above (below) diagonal k of the last two axes, by their global indices."""

    def run(world, ins, layout, attrs, dtype):
        (k,) = attrs
        (a,) = ins
        out = TiledArray.empty(layout, dtype, world)
        if out.local.size == 0:
            return out
        out.local[...] = a.local
        i = layout.indices(len(layout.shape) - 2, world.rank)
        j = layout.indices(len(layout.shape) - 1, world.rank)
        # Row indices ascend, so that in each local column the zeros are one interval of rows.
        edge = np.searchsorted(i, j - k) if lower else np.searchsorted(i, j - k, side="right")
        for column, e in enumerate(edge):
            if lower:
                out.local[..., :e, column] = 0
            else:
                out.local[..., e:, column] = 0
        return out

    return run


def _infer_triangle(shapes, dtypes, attrs):
    if len(shapes[0]) < 2:
        raise ValueError(f"tril and triu need at least two dimensions; the array has shape {shapes[0]}")
    return shapes[0], dtypes[0]


for _name, _lower in (("tril", True), ("triu", False)):
    register(
        name=_name, infer=_infer_triangle, place=place_elementwise, run=_run_triangle(_lower), local=True, family="elementwise"
    )
