"""The driver: a plain Python process or a notebook that runs programs on a world of workers.

The driver is no rank. It starts ``mpiexec -n P python -m pypto.run.worker``; every worker connects back over a local socket
with a fresh random key, and then the worker executes what it is sent with the same engine as an SPMD rank. Large arrays
travel through shared memory. Workers block on the socket between programs, so an idle world takes no processor time.
"""

import contextlib
import os
import pickle
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Any

import cloudpickle
import numpy as np

from pypto.comm import launch
from pypto.comm.memory import SharedBlock
from pypto.config import settings
from pypto.errors import BackendUnavailable, WorldError
from pypto.graph.graph import Program
from pypto.incidents import act, merged, wanted
from pypto.layout.layout import Layout
from pypto.ops.opdef import Env
from pypto.plan.schedule import Step, layout_of, planned
from pypto.run.execute import open_index

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

    def __init__(self, size: int, env: Env, threads: int | None, forget: Callable[["DriverEngine"], None]) -> None:
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
        self._busy = False
        self._forget = forget  # called once the workers are lost
        self._pid = os.getpid()
        self._process, self._connections, self._pids = _start(size, threads, env)

    # what the context asks of an engine

    @property
    def env(self) -> Env:
        """The defaults from which layouts are chosen, as the workers will see them."""
        if self._seen != settings.changes:
            self._seen = settings.changes
            self._env = replace(self._env, grid=settings.grid, nb=settings.chunk_size)
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
        """End the workers and wait for them; those that still compute what nobody waits for are killed."""
        if self._dead is None and os.getpid() == self._pid:
            self._dead = "the context has been finalised"
            if self._busy:
                self._kill()
            for c in self._connections:
                with contextlib.suppress(OSError, ValueError):
                    c.send_bytes(pickle.dumps([("close",)]))
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._kill()
            for c in self._connections:
                c.close()

    def _kill(self) -> None:
        """Kill the workers, mpiexec first, since it would report their deaths at length."""
        self._process.kill()
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

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
            # After an interrupt the answer is outstanding: it is thrown away when it comes, by its sequence number.
            self._busy = True
            answers = self._answers()
        except (EOFError, OSError) as error:
            self._lost(error)
        self._busy = False
        return _outcome(answers)

    def _answers(self) -> list[Any]:
        """Return every worker's answer to the last message: content, exception, incidents."""
        answers = []
        for c in self._connections:
            sequence = -1
            while sequence != self._sequence:
                message = c.recv_bytes()
                # Eight bytes say that all went well; anything else is a pickle, from a worker that holds our key.
                short = len(message) == 8
                sequence, *answer = (int.from_bytes(message, "little"), None, None, ()) if short else pickle.loads(message)
            answers.append(answer)
        return answers

    def _lost(self, error: BaseException) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.poll()
        self._process.kill()
        self._dead = f"a worker died (mpiexec ended with {code})" if code is not None else "a worker closed its connection"
        self._forget(self)
        raise WorldError(
            f"the world of {self.size} workers has ended: {self._dead}. Its output above says more; "
            "arrays that it held are lost, and the next operation starts a new world"
        ) from error


def _outcome(answers: list[Any]) -> list[Any]:
    """Return what the workers' answers hold; give their warnings, or raise the exception that they agree on."""
    if any(incidents for *_, incidents in answers):
        act(wanted(merged([list(incidents) for *_, incidents in answers])))
    for _, failure, _ in answers:
        if failure is not None:
            raise failure
    return [content for content, *_ in answers]


def _start(size: int, threads: int | None, layouts: Env) -> tuple[subprocess.Popen, list[Connection], list[int]]:
    """Start the workers and return mpiexec's process, and the connections and process numbers by rank."""
    folder = tempfile.mkdtemp(prefix="pypto-")  # mode 0700
    key = secrets.token_bytes(32)
    with open(os.open(os.path.join(folder, "key"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
        f.write(key)
    try:
        with Listener(os.path.join(folder, "socket"), "AF_UNIX", backlog=size, authkey=key) as listener:
            command, env = launch.mpiexec_command(size, threads)
            # In a process group of its own, an interrupt from the terminal comes to this process alone.
            command += [sys.executable, "-P", "-m", "pypto.run.worker", folder]
            process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, process_group=0)
            arrived: queue.Queue = queue.Queue()
            threading.Thread(target=_accept, args=(listener, size, arrived), daemon=True).start()
            connections, pids = _collect(process, arrived, size)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    hello = pickle.dumps([("path", sys.path), ("settings", settings.as_dict()), ("env", layouts)])
    for c in connections:
        c.send_bytes(hello)
    return process, connections, pids


def _accept(listener: Listener, size: int, arrived: queue.Queue) -> None:
    """Let in who holds the key, until there are `size`. Somebody without it takes nobody's place."""
    while size:
        try:
            arrived.put(listener.accept())
            size -= 1
        except (AuthenticationError, EOFError, ConnectionError):
            continue
        except OSError:  # the listener is closed
            return


def _collect(process: subprocess.Popen, arrived: queue.Queue, size: int) -> tuple[list[Connection], list[int]]:
    """Wait until every worker has connected and said its rank and its process number; return both in order of rank."""
    by_rank: dict[int, tuple[Connection, int]] = {}
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
        said = item.recv_bytes(16)
        by_rank[int.from_bytes(said[:8], "little")] = item, int.from_bytes(said[8:], "little")
    connections, pids = zip(*(by_rank[r] for r in range(size)), strict=True)
    return list(connections), list(pids)
