"""The operator table: one row says everything about an operator.

``infer``  shapes and dtypes of the operands and the attributes -> shape and dtype of the result (lists for several).
``place``  layouts of the operands -> layouts wanted of them and layout of the result; pure.
``run``    local parts in those layouts -> the result; a local kernel or an SPMD algorithm. Collective over all ranks.
``alone``  the same where there is one device, which holds all of every operand; default ``run``.
``cost``   flops of the whole operation, from the shapes.
``workspace``  bytes that it takes on a device beside operands and results.

Families (elementwise, reduction, ...) fill in the defaults; tests iterate over the table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from pypto.graph.graph import table
from pypto.layout.distribution import resolve
from pypto.layout.grid import ProcessGrid
from pypto.layout.layout import Layout

__all__ = ["Env", "OpDef", "register", "restrict", "table"]


@dataclass(frozen=True, slots=True)
class Env:
    """What the choice of a layout may depend on besides the operands: the number of ranks and the context's defaults."""

    size: int
    grid: tuple[int, ...] | None = None
    nb: int | None = None
    #: Ranks share cores: a grid of one row then, since a collective of a grid column waits for its turn on a core each time.
    crowded: bool = False

    def layout(self, shape: tuple[int, ...], dist: Any = None) -> Layout:
        """Return the layout that distribution `dist` (default ``"auto"``) means for an array of that shape."""
        return _layout(self, shape, dist)

    def replicated(self, shape: tuple[int, ...]) -> Layout:
        """Return the layout in which every rank holds all of the array."""
        return _layout(self, shape, "replicated")

    def default_grid(self) -> tuple[int, ...] | None:
        """Return the grid for matrices; None stands for the squarest."""
        return (1, self.size) if self.grid is None and self.crowded else self.grid

    def everyone(self) -> ProcessGrid:
        """Return the one-dimensional grid of all ranks."""
        return ProcessGrid.of((self.size,))


@lru_cache(maxsize=4096)
def _layout(env: Env, shape: tuple[int, ...], dist: Any) -> Layout:
    return resolve("auto" if dist is None else dist, shape, size=env.size, grid=env.default_grid(), nb=env.nb)


def _no_flops(shapes: list[tuple[int, ...]], out_shape: tuple[int, ...], attrs: tuple) -> int:
    return 0


@dataclass(frozen=True, eq=False, slots=True)
class OpDef:
    """A row of the table; see the module's text for the fields."""

    name: str
    infer: Callable[..., Any]
    place: Callable[..., tuple[tuple[Layout, ...], Any]]
    run: Callable[..., Any]
    alone: Callable[..., Any] | None = None
    cost: Callable[..., int] = _no_flops
    #: Equal attributes and operands give equal results, so that equal nodes may be one.
    pure: bool = True
    #: Operands may come in any storage order as long as each rank owns the right elements.
    any_order: bool = False
    #: `run` does not communicate: what it raises on one rank becomes every rank's exception at the end of the evaluation.
    local: bool = False
    #: Results share memory with the operand.
    view: bool = False
    #: Operands that `run` works on in place on several ranks; it is given buffers of its own for them.
    overwrites: tuple[int, ...] = ()
    #: Dear results are kept with the node once computed, so that a later program finds them through the user's handle.
    kept: bool = False
    #: Bytes of workspace on each rank beside operands and results, from shapes, dtype and number of ranks.
    workspace: Callable[..., int] | None = None
    family: str = ""

    def on(self, size: int) -> Callable[..., Any]:
        """Return what computes the operation on that number of devices."""
        return self.alone if size == 1 and self.alone is not None else self.run


def register(**fields: Any) -> OpDef:
    """Add a row to the table and return it."""
    op = OpDef(**fields)
    table[op.name] = op
    return op


def restrict(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """Return the layout in which an operand of `shape` lies beside one of `layout` that it is broadcast against."""
    if layout.shape == shape:
        return layout
    return _restrict(layout, shape)


@lru_cache(maxsize=4096)
def _restrict(layout: Layout, shape: tuple[int, ...]) -> Layout:
    lead = len(layout.shape) - len(shape)
    dims = tuple(
        layout.dims[lead + a] if n == layout.shape[lead + a] and layout.shape[lead + a] != 1 else None
        for a, n in enumerate(shape)
    )
    order = tuple(a - lead for a in layout.order if a >= lead)
    return Layout(shape, layout.grid, dims, (), order)


def nbytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Return the bytes of an array."""
    return prod(shape) * dtype.itemsize
