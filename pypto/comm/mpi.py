"""Comm over mpi4py, the only module that imports it.

Nothing blocks inside MPI: every operation is started and then tested in one loop, between pieces of other work. A wait
that lasts shows where each rank is, and a world whose ranks can no longer meet is ended.
"""

import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from pypto.comm import launch
from pypto.comm.board import Board
from pypto.comm.comm import Comm, Counter, Idle, Request
from pypto.config import settings
from pypto.errors import BackendUnavailable
from pypto.incidents import is_agreed

__all__ = ["MPIComm", "world_comm"]

#: Seconds of testing without a pause, after which a waiting rank gives its core to others where ranks share cores.
SPIN = 50e-6
#: Seconds after which a waiting rank says where every rank is.
REPORT = 10.0
#: Seconds for which a rank that ends the world lets the launcher pass its last words on.
LINGER = 0.3

_world: "MPIComm | None" = None


def world_comm() -> "MPIComm":
    """Return the communicator of all ranks of the launch; the first call initialises MPI."""
    global _world
    if _world is None:
        from mpi4py import MPI

        expected = launch.launched_size()
        if expected and expected != MPI.COMM_WORLD.Get_size():
            raise BackendUnavailable(
                f"the launcher started {expected} ranks, but MPI sees {MPI.COMM_WORLD.Get_size()}: mpiexec and the MPI library "
                f"that mpi4py loaded ({MPI.Get_library_version().splitlines()[0]}) do not belong together. Use `pypto run`"
            )
        _world = MPIComm(MPI, MPI.COMM_WORLD.Dup())
        if _world.rank:
            _show_warnings_once()
        _install_hook(_world)
    return _world


def _show_warnings_once() -> None:
    """Leave it to rank 0 to show the warnings that every rank gives. Who records warnings still sees them on every rank."""
    usual = warnings.showwarning

    def show(message, *args, **kwargs):
        if not is_agreed(message):
            usual(message, *args, **kwargs)

    warnings.showwarning = show


def _install_hook(comm: "MPIComm") -> None:
    """End all ranks where one leaves through an exception."""
    usual = sys.excepthook

    def hook(kind, error, trace):
        usual(kind, error, trace)
        if comm.size > 1:
            sys.stdout.flush()
            comm.abort(f"rank {comm.rank} ends with {kind.__name__}")

    sys.excepthook = hook


class _Request(Request):
    __slots__ = ("_buffers", "_comm", "_handle")

    def __init__(self, handle: Any, comm: "MPIComm", *buffers: Any) -> None:
        self._handle, self._comm, self._buffers = handle, comm, buffers

    def test(self) -> bool:
        return self._handle.Test()

    def wait(self, idle: Idle = None) -> None:
        if not self._handle.Test():
            self._comm.wait(self._handle.Test, idle)


class _Requests(Request):
    """Several handles as one request: a message in pieces."""

    __slots__ = ("_buffers", "_comm", "_handles")

    def __init__(self, handles: list[Any], comm: "MPIComm", *buffers: Any) -> None:
        self._handles, self._comm, self._buffers = handles, comm, buffers

    def test(self) -> bool:
        self._handles = [h for h in self._handles if not h.Test()]
        return not self._handles

    def wait(self, idle: Idle = None) -> None:
        if not self.test():
            self._comm.wait(self.test, idle)


class MPIComm(Comm):
    """Ranks of an MPI communicator."""

    def __init__(self, mpi: Any, handle: Any, parent: "MPIComm | None" = None, ranks: tuple[int, ...] | None = None) -> None:
        self._mpi, self._handle = mpi, handle
        self.rank, self.size = handle.Get_rank(), handle.Get_size()
        self.ranks = ranks if ranks is not None else tuple(range(self.size))
        self._top = parent or self
        self._subs: dict[tuple[int, ...], Comm] = {}
        self.counter = parent.counter if parent else Counter()
        self._ops = {
            "sum": mpi.SUM,
            "prod": mpi.PROD,
            "max": mpi.MAX,
            "min": mpi.MIN,
            "land": mpi.LAND,
            "lor": mpi.LOR,
        }
        if parent is None:
            on_node = handle.Split_type(mpi.COMM_TYPE_SHARED)
            self.node_size, self.node_rank = on_node.Get_size(), on_node.Get_rank()
            self.shares_cores = self.node_size > launch.cores()
            #: Whether the ranks of any node share cores; the same on every rank.
            self.crowded = bool(handle.allreduce(self.shares_cores, mpi.LOR))
            self.board = Board(self, on_node)
            on_node.Free()
        else:
            self.node_size, self.shares_cores, self.board = parent.node_size, parent.shares_cores, parent.board

    # waiting

    def wait(self, test: Callable[[], bool], idle: Idle) -> None:
        """Test until `test` holds: between tests do pieces of other work, then spin, then rest."""
        start = time.perf_counter()
        reported = False
        while True:
            if idle is not None:
                if not idle():
                    idle = None
            elif self.shares_cores:
                # Give the core away at once: the rank that we wait for may need it.
                os.sched_yield()
                if time.perf_counter() - start > SPIN:
                    time.sleep(20e-6)
            if test():
                return
            if time.perf_counter() - start > REPORT and not reported:
                reported = True
                self._top.board.report(self.rank, REPORT)
            if reported:
                time.sleep(1e-3)
                gone = self._top.board.gone(self.ranks)
                if gone and not test():
                    self.abort(f"rank(s) {gone} have ended while rank {self._top.rank} waits for them")

    # messages

    def isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> Request:
        """Begin to send `buf` in pieces of at most ``settings.max_message`` bytes."""
        return self._pieces(self._handle.Isend, buf, dest, tag, True)

    def irecv(self, buf: np.ndarray, source: int, tag: int = 0) -> Request:
        """Begin to receive into `buf`, in the pieces in which it was sent."""
        return self._pieces(self._handle.Irecv, buf, source, tag, False)

    def _pieces(self, call: Callable[..., Any], buf: np.ndarray, peer: int, tag: int, counted: bool) -> Request:
        n = buf.nbytes
        if n <= settings.max_message:
            if counted:
                self.counter.add(1, n)
            return _Request(call([_bytes(buf), self._mpi.BYTE], peer, tag), self, buf)
        flat = _bytes(buf)
        step = settings.max_message
        handles = [call([flat[i : i + step], self._mpi.BYTE], peer, tag) for i in range(0, n, step)]
        if counted:
            self.counter.add(len(handles), n)
        return _Requests(handles, self, buf)

    def ibcast(self, buf: np.ndarray, root: int) -> Request:
        """Begin a broadcast; each rank but the root counts as one message received from its parent."""
        flat, step = _bytes(buf), settings.max_message
        pieces = [flat[i : i + step] for i in range(0, max(buf.nbytes, 1), step)]
        if self.rank == root and self.size > 1:
            self.counter.add((self.size - 1) * len(pieces), (self.size - 1) * buf.nbytes)
        handles = [self._handle.Ibcast([p, self._mpi.BYTE], root) for p in pieces]
        return _Request(handles[0], self, buf) if len(handles) == 1 else _Requests(handles, self, buf)

    def allreduce(self, buf: np.ndarray, op: str = "sum", idle: Idle = None) -> None:
        """Combine `buf` over all ranks in place."""
        if self.size == 1 or buf.size == 0:
            return
        flat = _bytes(buf).view(buf.dtype)
        step = max(1, settings.max_message // buf.itemsize)
        self.counter.add(1, buf.nbytes)
        kind = _mpi_type(self._mpi, buf.dtype)
        if kind is None:
            flat[...] = _reduced(self.allgather(flat), op)
            return
        for i in range(0, flat.size, step):
            handle = self._handle.Iallreduce(self._mpi.IN_PLACE, [flat[i : i + step], kind], self._ops[op])
            _Request(handle, self, buf).wait(idle)

    def allgather(self, buf: np.ndarray) -> np.ndarray:
        """Return every rank's `buf`, stacked along a new first axis."""
        data = np.ascontiguousarray(buf)
        out = np.empty((self.size, *buf.shape), buf.dtype)
        if out.size == 0:
            return out
        self.counter.add(self.size - 1, (self.size - 1) * data.nbytes)
        step = max(1, settings.max_message // self.size)
        if data.nbytes <= step:
            handle = self._handle.Iallgather([_bytes(data), self._mpi.BYTE], [_bytes(out), self._mpi.BYTE])
            _Request(handle, self, data, out).wait()
            return out
        mine = _bytes(data)
        rows = out.reshape(self.size, -1).view(np.uint8)
        for i in range(0, len(mine), step):
            piece = np.empty((self.size, min(step, len(mine) - i)), np.uint8)
            handle = self._handle.Iallgather([mine[i : i + step], self._mpi.BYTE], [piece, self._mpi.BYTE])
            _Request(handle, self, piece).wait()
            rows[:, i : i + step] = piece
        return out

    def allgather_object(self, value: Any) -> list[Any]:
        """Return every rank's object."""
        return self._handle.allgather(value)

    def bcast_object(self, value: Any, root: int) -> Any:
        """Return the root's object."""
        return self._handle.bcast(value, root)

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            _Request(self._handle.Ibarrier(), self).wait()

    def sub(self, ranks: tuple[int, ...]) -> "Comm":
        """Return the communicator of some world ranks; collective over these the first time."""
        top = self._top
        found = top._subs.get(ranks)
        if found is None:
            if ranks == top.ranks:
                found = top
            else:
                group = top._handle.Get_group().Incl(ranks)
                found = MPIComm(self._mpi, top._handle.Create_group(group, tag=hash(ranks) % 30_000), top, ranks)
            top._subs[ranks] = found
        return found

    def abort(self, message: str, error: BaseException | None = None) -> NoReturn:
        """Print why and end every rank."""
        report = "".join(traceback.format_exception(error)) if error is not None else ""
        report += f"pypto: rank {self._top.rank} of {self._top.size}: {message}; ending all ranks\n"
        sys.stdout.flush()
        sys.stderr.write(report)
        sys.stderr.flush()
        time.sleep(LINGER)
        self._mpi.COMM_WORLD.Abort(1)
        os._exit(1)


def _bytes(buf: np.ndarray) -> np.ndarray:
    """Return the memory of a contiguous array, its axes stored in any order, as bytes."""
    if buf.flags.c_contiguous:
        return buf.reshape(-1).view(np.uint8)
    stored = buf.transpose(sorted(range(buf.ndim), key=lambda a: -buf.strides[a]))
    if stored.flags.c_contiguous:
        return stored.reshape(-1).view(np.uint8)
    raise ValueError(f"a message buffer must be contiguous; got strides {buf.strides} for shape {buf.shape}")


def _mpi_type(mpi: Any, dtype: np.dtype) -> Any:
    if dtype == np.float16:
        return None
    return mpi._typedict.get(dtype.char) if hasattr(mpi, "_typedict") else mpi.Datatype.fromcode(dtype.char)


_COMBINE = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "land": np.logical_and,
    "lor": np.logical_or,
}


def _reduced(stacked: np.ndarray, op: str) -> np.ndarray:
    return _COMBINE[op].reduce(stacked, axis=0)
