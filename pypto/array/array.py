"""The public array: a lazy handle on a node of the graph. ``methods`` adds NumPy's functions and operators to it."""

import operator
from typing import Any

import numpy as np

from pypto.dtypes import checked
from pypto.errors import ContextError
from pypto.graph.graph import Node
from pypto.layout.distribution import describe
from pypto.ops.opdef import OpDef, table
from pypto.run import context as _context

__all__ = ["SCALARS", "Array", "apply", "as_array", "binary", "compute", "results", "unary"]

SCALARS = (bool, int, float, complex)


def build(op: OpDef, inputs: tuple[Node, ...], attrs: tuple, context: Any) -> Node:
    """Build a node: infer shape and dtype, so that mistakes are found now and not when it is computed."""
    for n in inputs:
        if n.context is not context:
            raise ContextError(
                "operands belong to different contexts, or to one that is closed; create them again after init()"
            )
    shape, dtype = op.infer([n.shape for n in inputs], [n.dtype for n in inputs], attrs)
    node = Node(op, inputs, attrs, shape, dtype, context)
    context.note(node)
    return node


def apply(name: str, arrays: tuple["Array", ...], attrs: tuple = ()) -> "Array":
    """Apply a row of the table to arrays."""
    inputs = tuple([a._node for a in arrays])
    return Array(build(table[name], inputs, attrs, inputs[0].context if inputs else _context.current()))


def results(name: str, arrays: tuple["Array", ...], attrs: tuple = ()) -> tuple["Array", ...]:
    """Apply a row that has several results."""
    inputs = tuple(a._node for a in arrays)
    node = build(table[name], inputs, attrs, inputs[0].context)
    item = table["item"]
    return tuple(Array(build(item, (node,), (i,), node.context)) for i in range(len(node.shape)))


def as_array(x: Any, context: Any = None, dist: Any = None) -> "Array":
    """Return `x` as an Array: NumPy arrays, nested sequences and NumPy scalars are captured as they are now."""
    if isinstance(x, Array):
        return x
    context = context or _context.current()
    data = np.asarray(x)
    if data.dtype.kind in "OSUVmM":
        raise TypeError(f"cannot make an Array of dtype {data.dtype}; give numbers or booleans")
    dtype = checked(data.dtype)
    return Array(context.put(data.astype(dtype, copy=False), dist))


def unary(name: str, x: Any) -> "Array":
    """Apply an elementwise function of one operand."""
    return apply(name, (as_array(x),))


def _scalar(x: Any):
    """Return `x` as a Python scalar that promotes weakly, or None where it is not one."""
    return x if type(x) in SCALARS else None


def binary(name: str, x: Any, y: Any) -> "Array":
    """Apply an elementwise function of two operands, either of which may be a Python scalar."""
    if type(x) is Array:
        if type(y) is Array:
            return apply(name, (x, y))
        if type(y) in SCALARS:
            return apply(name, (x,), ((1, y),))
        return apply(name, (x, as_array(y, x._node.context)))
    if type(y) is Array:
        if type(x) in SCALARS:
            return apply(name, (y,), ((0, x),))
        return apply(name, (as_array(x, y._node.context), y))
    return apply(name, (as_array(x), as_array(y)))


def compute(*arrays: "Array") -> tuple["Array", ...]:
    """Evaluate several arrays together, so that what they share is computed once.

    Parameters
    ----------
    *arrays : Array

    Returns
    -------
    tuple of Array
        The same arrays, now holding their values, still distributed.

    Notes
    -----
    Collective in an SPMD program: every rank calls it with the same arrays.

    Examples
    --------
    >>> import pypto
    >>> a = pypto.ones((3, 3))
    >>> s, m = pypto.compute(a.sum(), a.max())
    >>> float(s), float(m)
    (9.0, 1.0)
    """
    by_context: dict[int, list[Array]] = {}
    for a in arrays:
        if not isinstance(a, Array):
            raise TypeError(f"compute() takes arrays of pypto; got {type(a).__name__}")
        by_context.setdefault(id(a._node.context), []).append(a)
    for group in by_context.values():
        group[0]._node.context.compute([a._node for a in group])
    return arrays


class Array:
    """A lazy, n-dimensional, distributed array.

    Operations on it build a graph; :meth:`compute` runs it and whatever needs numbers computes by itself. Make arrays with
    :func:`pypto.asarray`, :func:`pypto.zeros`, :func:`pypto.from_function` and the like.

    Notes
    -----
    An array never changes: there are no views that alias. In-place operators (``A += B``) give the handle a new value;
    arrays that were made from the old one keep it.

    Examples
    --------
    >>> import numpy as np, pypto
    >>> a = pypto.asarray(np.eye(3))
    >>> np.asarray((a + a.T) @ a)[0, 0]
    np.float64(2.0)
    """

    __slots__ = ("__weakref__", "_node")
    __array_priority__ = 100.0

    def __init__(self, node: Node) -> None:
        self._node = node

    # what is known without computing

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self._node.shape

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return self._node.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for extent in self._node.shape:
            n *= extent
        return n

    @property
    def nbytes(self) -> int:
        """Bytes of all elements together, over all devices."""
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def device(self) -> str:
        """Kind of device that the array lives on."""
        return "cpu"

    def to_device(self, device: str, /, *, stream: Any = None) -> "Array":
        """Return the array on a device kind; ``"cpu"`` is the one there is."""
        if device != "cpu" or stream is not None:
            raise ValueError(f"device={device!r}, stream={stream!r} is not available; the devices are 'cpu'")
        return self

    @property
    def distribution(self):
        """How the elements are spread over the devices; computes the array if it has not been computed."""
        self.compute()
        return describe(self._node.value.layout, self._node.context.size)

    @property
    def layout(self):
        """The exact layout (a :class:`pypto.layout.Layout`); computes the array if it has not been computed."""
        self.compute()
        return self._node.value.layout

    @property
    def local(self) -> np.ndarray:
        """This rank's part as a read-only NumPy view; computes the array if it has not been computed."""
        self.compute()
        view = self._node.context.engine.part(self._node.value)[...]
        view.flags.writeable = False
        return view

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over an array without axes")
        return (self[i] for i in range(self.shape[0]))

    def __repr__(self) -> str:
        state = "computed" if self._node.value is not None else f"lazy {self._node.op.name}"
        return f"<pypto.Array shape={self.shape} dtype={self.dtype} {state}>"

    def __str__(self) -> str:
        return str(self.to_numpy())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else format(str(self), spec)

    # numbers

    def compute(self) -> "Array":
        """Evaluate the array and return it, now holding its tiles, still distributed. Collective in an SPMD program."""
        if self._node.value is None:
            self._node.context.compute([self._node])
        else:
            self._node.context.check()
        return self

    def to_numpy(self) -> np.ndarray:
        """Return all of the array as a new NumPy array, on every rank. Collective in an SPMD program."""
        self.compute()
        return self._node.context.engine.gather(self._node.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a distributed array cannot become a NumPy array without a copy")
        whole = self.to_numpy()
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def item(self):
        """Return the only element as a Python scalar."""
        if self.size != 1:
            raise ValueError(f"only an array of one element is a scalar; the shape is {self.shape}")
        return self.to_numpy().item()

    def tolist(self):
        """Return nested lists of Python scalars."""
        return self.to_numpy().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        return operator.index(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError("the truth value of an array with other than one element is ambiguous; use all() or any()")
        return bool(self.item())

    # arrangement

    @property
    def T(self) -> "Array":
        """The array with its axes reversed."""
        return self if self.ndim < 2 else apply("transpose", (self,), (tuple(reversed(range(self.ndim))),))

    @property
    def mT(self) -> "Array":
        """The array with its last two axes exchanged."""
        if self.ndim < 2:
            raise ValueError(f"mT needs at least two axes; the shape is {self.shape}")
        n = self.ndim
        return apply("transpose", (self,), ((*range(n - 2), n - 1, n - 2),))

    @property
    def real(self) -> "Array":
        """Real part."""
        return apply("real", (self,)) if self.dtype.kind == "c" else self

    @property
    def imag(self) -> "Array":
        """Imaginary part."""
        return apply("imag", (self,))

    def repartition(self, distribution: Any) -> "Array":
        """Return the array spread over the devices as `distribution` says.

        Parameters
        ----------
        distribution : str or Distribution
            ``"row"``, ``"col"``, ``"block"``, ``"block_cyclic"``, ``"replicated"``, ``"auto"``, or a value such as
            ``pypto.BlockCyclic(64, (2, 2))``.
        """
        self._node.context.env.layout(self.shape, distribution)  # a wrong one raises here
        return apply("repartition", (self,), (distribution,))

    def conj(self) -> "Array":
        """Return the complex conjugate."""
        return apply("conj", (self,))

    conjugate = conj
