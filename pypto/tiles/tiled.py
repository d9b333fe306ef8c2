"""Materialised arrays: a layout, this rank's part, and the world it lives in."""

import numpy as np

from pypto.comm.comm import Comm
from pypto.device.cpu import CpuDevice
from pypto.incidents import Incidents
from pypto.layout.grid import ProcessGrid
from pypto.layout.layout import Layout

__all__ = ["TiledArray", "World"]


class World:
    """All ranks of the computation as one of them sees them: its number, its communicators, its device, what happens on it."""

    __slots__ = ("comm", "device", "incidents", "rank", "size")

    def __init__(self, comm: Comm, device: CpuDevice | None = None, incidents: Incidents | None = None) -> None:
        self.comm = comm
        self.incidents = incidents if incidents is not None else Incidents()
        self.rank = comm.rank
        self.size = comm.size
        self.device = device or CpuDevice()

    def grid_comm(self, grid: ProcessGrid, axes: tuple[int, ...]) -> Comm:
        """Return the communicator of the ranks that share this rank's place on `grid` but for `axes`."""
        return self.comm.sub(grid.axis_ranks(self.rank, axes))


class TiledArray:
    """The distributed value of an array: `local` is this rank's part, one dense array stored in the layout's order.

    The part holds the rank's tiles one behind the other along each axis, so that a trailing matrix is a plain slice of
    it and one GEMM updates all of its tiles. A rank outside the grid holds an empty part.
    """

    __slots__ = ("layout", "local", "world")

    def __init__(self, layout: Layout, local: np.ndarray, world: World) -> None:
        self.layout = layout
        self.local = local
        self.world = world

    @classmethod
    def empty(cls, layout: Layout, dtype: np.dtype, world: World) -> "TiledArray":
        """Return an uninitialised array of that layout."""
        local = world.device.empty(layout.local_shape(world.rank), dtype, layout.order)
        return cls(layout, local, world)

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.local.dtype

    def comm(self, which: str) -> Comm:
        """Return the communicator of this rank's grid ``"row"`` or ``"col"`` (column), of a two-dimensional grid."""
        return self.world.grid_comm(self.layout.grid, (1,) if which == "row" else (0,))

    def copy(self) -> "TiledArray":
        """Return an equal array with a buffer of its own."""
        out = TiledArray.empty(self.layout, self.dtype, self.world)
        out.local[...] = self.local
        return out

    def transpose(self, axes: tuple[int, ...]) -> "TiledArray":
        """Return the array with its axes permuted: a view, nothing moves."""
        return TiledArray(self.layout.transpose(axes), self.local.transpose(axes), self.world)
