"""Communicators: about ten collectives on contiguous buffers, with counting and splitting below this interface.

:class:`Comm` is what the algorithms see; :class:`SerialComm` is one rank alone, ``_mpi.MPIComm`` many over MPI.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

__all__ = ["Comm", "Counter", "Request", "SerialComm"]

Idle = Callable[[], bool] | None


class Counter:
    """Messages and bytes that this rank has sent; a collective counts the messages of its tree."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def add(self, messages: int, nbytes: int) -> None:
        """Count some messages of `nbytes` together."""
        self.messages += messages
        self.bytes += nbytes

    def reset(self) -> None:
        """Start again at zero."""
        self.messages = self.bytes = 0

    @contextmanager
    def count(self) -> Iterator["Counter"]:
        """Count what a block of code sends."""
        before = self.messages, self.bytes
        inside = Counter()
        try:
            yield inside
        finally:
            inside.messages, inside.bytes = self.messages - before[0], self.bytes - before[1]


class Request(ABC):
    """A message under way."""

    @abstractmethod
    def test(self) -> bool:
        """Return whether it is complete, making progress on the way."""

    @abstractmethod
    def wait(self, idle: Idle = None) -> None:
        """Return when it is complete. `idle` does a piece of other work and returns False when none is left."""


class _Done(Request):
    def test(self) -> bool:
        return True

    def wait(self, idle: Idle = None) -> None:
        return


class Comm(ABC):
    """A group of ranks. Buffers are contiguous arrays (C or Fortran) of any dtype."""

    rank: int
    size: int
    #: World ranks of the members, in order.
    ranks: tuple[int, ...]
    counter: Counter
    #: Where every rank of the node is, for reports; None for a rank alone.
    board: Any = None

    @abstractmethod
    def isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> Request:
        """Begin to send `buf`, which must not change until the request is complete."""

    @abstractmethod
    def irecv(self, buf: np.ndarray, source: int, tag: int = 0) -> Request:
        """Begin to receive into `buf`."""

    def send(self, buf: np.ndarray, dest: int, tag: int = 0) -> None:
        """Send and wait."""
        self.isend(buf, dest, tag).wait()

    def recv(self, buf: np.ndarray, source: int, tag: int = 0) -> None:
        """Receive and wait."""
        self.irecv(buf, source, tag).wait()

    @abstractmethod
    def ibcast(self, buf: np.ndarray, root: int) -> Request:
        """Begin to give the root's `buf` to all."""

    def bcast(self, buf: np.ndarray, root: int, idle: Idle = None) -> None:
        """Give the root's `buf` to all."""
        self.ibcast(buf, root).wait(idle)

    @abstractmethod
    def allreduce(self, buf: np.ndarray, op: str = "sum", idle: Idle = None) -> None:
        """Combine `buf` over all ranks in place; op is one of sum, prod, max, min, land, lor."""

    @abstractmethod
    def allgather(self, buf: np.ndarray) -> np.ndarray:
        """Return every rank's `buf`, stacked along a new first axis."""

    @abstractmethod
    def allgather_object(self, value: Any) -> list[Any]:
        """Return every rank's object; for set-up and reports only."""

    @abstractmethod
    def bcast_object(self, value: Any, root: int) -> Any:
        """Return the root's object; for set-up and reports only."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks."""

    @abstractmethod
    def sub(self, ranks: tuple[int, ...]) -> "Comm":
        """Return the communicator of some world ranks; collective over these the first time."""

    @abstractmethod
    def abort(self, message: str, error: BaseException | None = None) -> NoReturn:
        """Print why, with the error's traceback, and end every rank."""


class SerialComm(Comm):
    """One rank alone; needs no MPI."""

    def __init__(self, world_rank: int = 0) -> None:
        self.rank, self.size, self.ranks = 0, 1, (world_rank,)
        self.counter = Counter()

    def isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> Request:
        """Not possible: there is nobody to send to."""
        raise ValueError(f"a single rank has no rank {dest} to send to")

    def irecv(self, buf: np.ndarray, source: int, tag: int = 0) -> Request:
        """Not possible: there is nobody to receive from."""
        raise ValueError(f"a single rank has no rank {source} to receive from")

    def ibcast(self, buf: np.ndarray, root: int) -> Request:
        """Nothing to do."""
        return _Done()

    def allreduce(self, buf: np.ndarray, op: str = "sum", idle: Idle = None) -> None:
        """Nothing to do."""

    def allgather(self, buf: np.ndarray) -> np.ndarray:
        """Return `buf` with a new first axis."""
        return buf[np.newaxis].copy()

    def allgather_object(self, value: Any) -> list[Any]:
        """Return the object alone."""
        return [value]

    def bcast_object(self, value: Any, root: int) -> Any:
        """Return the object."""
        return value

    def barrier(self) -> None:
        """Nothing to wait for."""

    def sub(self, ranks: tuple[int, ...]) -> "Comm":
        """Return itself."""
        return self

    def abort(self, message: str, error: BaseException | None = None) -> NoReturn:
        """Raise: one rank alone needs no other to be ended."""
        raise RuntimeError(message) from error
