"""The driver: a plain Python process or a notebook that runs programs on a world of workers.

The driver is no rank. It starts ``mpiexec -n P python -m pypto._worker``; every worker connects back over a local socket
with a fresh random key, and then the worker executes what it is sent with the same engine as an SPMD rank. Large arrays
travel through shared memory. Workers block on the socket between programs, so an idle world takes no processor time.
"""

import contextlib
import os
import pickle
import queue
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection, Listener
from typing import Any

import cloudpickle
import numpy as np

from pypto import launch
from pypto._memory import SharedBlock
from pypto.config import settings
from pypto.errors import BackendUnavailable, WorldError
from pypto.execute import open_index
from pypto.graph import Program
from pypto.layout import Layout
from pypto.opdef import Env
from pypto.schedule import Step, layout_of, planned

__all__ = ["DriverEngine", "RemoteValue"]

#: Arrays of up to this many bytes travel inside the message.
INLINE = 1 << 16
START_TIMEOUT = 60.0
#: Prepared programs that are kept.
PROGRAMS = 256


class RemoteValue:
    """A value that the workers hold under a number."""

    __slots__ = ("_released", "dtype", "layout", "number")

    def __init__(self, number: int, layout: Any, dtype: Any, released: list[int]) -> None:
        self.number, self.layout, self.dtype = number, layout, dtype
        self._released = released

    def __del__(self) -> None:
        # The workers are told with the next message; each frees its part, which needs no other rank.
        self._released.append(self.number)


class DriverEngine:
    """Runs programs on workers that this process has started."""

    remote = True

    def __init__(self, size: int, env: Env, threads: int | None) -> None:
        self._env = env
        self._seen = settings.changes
        self.size = size
        self._number = 0
        self._sequence = 0
        self._queue: list[tuple] = []
        self._released: list[int] = []
        self._sent_version = -1
        self._programs: dict[tuple, tuple[bytes, bool, list[Step]]] = {}
        self._dead: str | None = None
        self._pid = os.getpid()
        self._process, self._connections = _start(size, threads)

    # what the context asks of an engine

    @property
    def env(self) -> Env:
        """The defaults from which layouts are chosen, as the workers will see them."""
        if self._seen != settings.changes:
            self._seen = settings.changes
            self._env = Env(self.size, settings.grid, settings.chunk_size)
        return self._env

    def put(self, data: np.ndarray, layout: Layout) -> RemoteValue:
        """Ship `data`; each worker keeps its part."""
        value = self._new(layout, data.dtype)
        if data.nbytes <= INLINE:
            self._queue.append(("put", value.number, layout, np.array(data)))
            return value
        block = SharedBlock(data.nbytes)
        block.array(data.shape, data.dtype)[...] = data
        try:
            self._call(("put_shared", value.number, layout, block.address, data.shape, data.dtype))
        finally:
            block.close()
        return value

    def put_local(self, parts: Any, layout: Layout, dtype: np.dtype) -> RemoteValue:
        """Ship one part to each worker."""
        if not isinstance(parts, (list, tuple)) or len(parts) != self.size:
            raise ValueError(f"from_local on a driver takes a list of {self.size} parts, one per device")
        value = self._new(layout, dtype)
        self._call(("put_local", value.number, layout, dtype), parts)
        return value

    def note_input(self, checksum: int) -> None:
        """Inputs come from this process alone: nothing to compare."""

    def gather(self, value: RemoteValue) -> np.ndarray:
        """Return all of `value` as one array."""
        shape, dtype = value.layout.shape, value.dtype
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if nbytes <= INLINE:
            out = np.empty(shape, dtype)
            for rank, part in enumerate(self._call(("part", value.number))):
                if part is not None:
                    out[open_index(value.layout, rank)] = part
            return out
        block = SharedBlock(nbytes)
        try:
            self._call(("gather", value.number, block.address, shape, dtype))
            return block.array(shape, dtype)
        finally:
            block.close()

    def item(self, value: RemoteValue, index: int) -> RemoteValue:
        """Return one of several results."""
        out = self._new(value.layout[index], value.dtype[index])
        self._queue.append(("item", out.number, value.number, index))
        return out

    def part(self, value: RemoteValue) -> np.ndarray:
        """The driver holds no part."""
        raise ValueError("a driving process holds no local part; use np.asarray(x), or run the script under mpiexec")

    def run(self, program: Program, keep: list[int]) -> list[RemoteValue]:
        """Run `program` on the workers; return handles of its outputs and of the slots `keep`."""
        slots = [*program.outputs, *keep]
        first = len(program.leaves)
        text, pure, steps = self._prepared(program)
        made = [self._new(steps[s - first].out, steps[s - first].instr.dtype) for s in slots]
        leaves = [v.number for v in program.leaves]
        self._call(("run", text, pure, leaves, program.outputs, keep, [v.number for v in made]))
        return made

    def _prepared(self, program: Program) -> tuple[bytes, bool, list[Step]]:
        """Return the instructions as text, by which a worker knows a program that it has run before, and the schedule.

        The schedule is pure: this process knows the layouts that the workers will choose, and refuses what does not fit.
        """
        keys = tuple(i.key for i in program.instrs)
        if None in keys:
            return cloudpickle.dumps(program.instrs), False, planned(program, self.env)
        key = (keys, tuple(program.outputs), tuple(layout_of(v) for v in program.leaves), settings.changes)
        found = self._programs.get(key)
        if found is None:
            if len(self._programs) >= PROGRAMS:
                self._programs.clear()
            found = self._programs[key] = pickle.dumps(program.instrs), True, planned(program, self.env)
        return found

    def close(self) -> None:
        """End the workers and wait for them."""
        if self._dead is None and os.getpid() == self._pid:
            self._dead = "the context has been finalised"
            for c in self._connections:
                with contextlib.suppress(OSError, ValueError):
                    c.send_bytes(pickle.dumps([("close",)]))
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            for c in self._connections:
                c.close()

    # numbers, messages

    def _new(self, layout: Any, dtype: Any) -> RemoteValue:
        self._number += 1
        return RemoteValue(self._number, layout, dtype, self._released)

    def _call(self, command: tuple, parts: Any = None) -> list[Any]:
        """Send what is queued and `command` to every worker; return their answers, or raise the workers' error."""
        if self._dead is not None:
            raise WorldError(f"the world of workers has ended: {self._dead}. Call pypto.init() to start another")
        batch: list[tuple] = []
        if self._sent_version != settings.changes:
            batch.append(("settings", settings.as_dict()))
            self._sent_version = settings.changes
        if self._released:
            done, self._released[:] = self._released[:], []
            batch.append(("release", done))
        batch += self._queue
        self._queue = []
        self._sequence += 1
        message = pickle.dumps([*batch, ("answer", self._sequence), command])
        try:
            for rank, c in enumerate(self._connections):
                c.send_bytes(
                    message if parts is None else pickle.dumps([*batch, ("answer", self._sequence), (*command, parts[rank])])
                )
            return self._answers()
        except (EOFError, OSError) as error:
            self._lost(error)
        except BaseException:
            # An answer is outstanding: it is thrown away when it comes, by its sequence number.
            raise

    def _answers(self) -> list[Any]:
        answers = []
        for c in self._connections:
            sequence = -1
            while sequence != self._sequence:
                message = c.recv_bytes()
                # Eight bytes say that all went well; anything else is a pickle, from a worker that holds our key.
                short = len(message) == 8
                sequence, kind, content = (int.from_bytes(message, "little"), "ok", None) if short else pickle.loads(message)
            answers.append((kind, content))
        for kind, content in answers:
            if kind == "error":
                raise content
        return [content for _, content in answers]

    def _lost(self, error: BaseException) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.poll()
        self._process.kill()
        self._dead = f"a worker died (mpiexec ended with {code})" if code is not None else "a worker closed its connection"
        from pypto.context import forget

        forget(self)
        raise WorldError(
            f"the world of {self.size} workers has ended: {self._dead}. Its output above says more; "
            "arrays that it held are lost, and the next operation starts a new world"
        ) from error


def _start(size: int, threads: int | None) -> tuple[subprocess.Popen, list[Connection]]:
    """Start the workers and return mpiexec's process and the connections, by rank."""
    folder = tempfile.mkdtemp(prefix="pypto-")  # mode 0700
    key = secrets.token_bytes(32)
    with open(os.open(os.path.join(folder, "key"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
        f.write(key)
    try:
        with Listener(os.path.join(folder, "socket"), "AF_UNIX", backlog=size, authkey=key) as listener:
            command, env = launch.mpiexec_command(size, threads)
            process = subprocess.Popen(
                [*command, sys.executable, "-P", "-m", "pypto._worker", folder], env=env, stdin=subprocess.DEVNULL
            )
            arrived: queue.Queue = queue.Queue()
            threading.Thread(target=_accept, args=(listener, size, arrived), daemon=True).start()
            connections = _collect(process, arrived, size)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    hello = pickle.dumps([("path", sys.path), ("settings", settings.as_dict())])
    for c in connections:
        c.send_bytes(hello)
    return process, connections


def _accept(listener: Listener, size: int, arrived: queue.Queue) -> None:
    for _ in range(size):
        try:
            arrived.put(listener.accept())
        except Exception as error:
            arrived.put(error)


def _collect(process: subprocess.Popen, arrived: queue.Queue, size: int) -> list[Connection]:
    """Wait until every worker has connected and said its rank."""
    by_rank: dict[int, Connection] = {}
    end = time.monotonic() + START_TIMEOUT
    while len(by_rank) < size:
        try:
            item = arrived.get(timeout=0.1)
        except queue.Empty:
            code = process.poll()
            if code is None and time.monotonic() < end:
                continue
            process.kill()
            why = f"mpiexec ended with {code}" if code is not None else f"nothing heard for {START_TIMEOUT:.0f} s"
            raise BackendUnavailable(
                f"{size} devices were asked for, but only {len(by_rank)} worker(s) started: {why}. "
                "Run `pypto info` to see the MPI library and mpiexec in use"
            ) from None
        if isinstance(item, Exception):
            continue  # somebody without the key knocked
        by_rank[int.from_bytes(item.recv_bytes(8), "little")] = item
    return [by_rank[r] for r in range(size)]
