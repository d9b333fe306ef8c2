"""A worker of a driven world: ``mpiexec -n P python -P -m pypto.run.worker FOLDER``."""

import os
import pickle
import signal
import sys
from functools import lru_cache
from multiprocessing.connection import Client, Connection

from pypto.comm.memory import attach
from pypto.comm.mpi import world_comm
from pypto.config import settings
from pypto.graph.graph import Program
from pypto.ops.opdef import Env
from pypto.run.execute import LocalEngine, open_index
from pypto.tiles.tiled import World


class Worker:
    """Holds values by number and does what the driver says, one message at a time."""

    def __init__(self, connection: Connection, engine: LocalEngine) -> None:
        self.connection = connection
        self.engine = engine
        self.values: dict = {}
        self.sequence = 0
        self.open = True

    def serve(self) -> None:
        """Do messages until the driver closes the connection or dies."""
        while self.open:
            try:
                message = self.connection.recv_bytes()
            except (EOFError, OSError):
                return
            commands = pickle.loads(message)  # from the driver whose key we hold
            try:
                answer, failure = None, None
                for command in commands:
                    answer = getattr(self, "do_" + command[0])(*command[1:])
            except Exception as error:
                answer, failure = None, error
            if self.open and self.sequence:
                self.answer(answer, failure)

    def answer(self, content, failure: Exception | None) -> None:
        """Send an answer, with what has happened on this rank."""
        incidents = self.engine.world.incidents.take()
        if content is None and failure is None and not incidents:
            self.connection.send_bytes(self.sequence.to_bytes(8, "little"))
            return
        sent = [(*i[:4], _portable(i[4]) if i[3] == "error" else i[4]) for i in incidents]
        failed = None if failure is None else _portable(failure)
        self.connection.send_bytes(pickle.dumps((self.sequence, content, failed, sent)))

    def do_answer(self, sequence: int) -> None:
        """Answer this message under that number."""
        self.sequence = sequence

    def do_path(self, path: list[str]) -> None:
        """Import the user's modules from where the driver does."""
        sys.path[:] = path

    def do_settings(self, values: dict) -> None:
        """Take the driver's settings."""
        settings.assign(values)

    def do_env(self, env: Env) -> None:
        """Choose layouts by the driver's defaults."""
        self.engine.choose_by(env)

    def do_release(self, numbers: list[int]) -> None:
        """Forget values."""
        for n in numbers:
            self.values.pop(n, None)

    def do_put(self, number: int, layout, data) -> None:
        """Keep this rank's part of an array that came with the message."""
        self.values[number] = self.engine.put(data, layout)

    def do_put_shared(self, number: int, layout, address, shape, dtype) -> None:
        """Keep this rank's part of an array in the driver's memory."""
        self.values[number] = self.engine.put(attach(address, shape, dtype), layout)

    def do_put_local(self, number: int, layout, dtype, part) -> None:
        """Keep the part that the driver has for this rank."""
        self.values[number] = self.engine.put_local(part, layout, dtype)

    def do_item(self, number: int, source: int, index: int) -> None:
        """Name one of several results."""
        self.values[number] = self.values[source][index]

    def do_part(self, number: int):
        """Send this rank's part, where it is the first replica."""
        value = self.values[number]
        return value.local if self._first(value) else None

    def do_gather(self, number: int, address, shape, dtype) -> None:
        """Write this rank's part into the driver's memory."""
        value = self.values[number]
        if self._first(value) and value.local.size:
            attach(address, shape, dtype)[open_index(value.layout, self.engine.world.rank)] = value.local

    def _first(self, value) -> bool:
        rank = self.engine.world.rank
        return value.layout.holds(rank) and value.layout.replica(rank)[0] == 0

    def do_run(self, text: bytes, pure: bool, leaves, outputs, keep, numbers) -> None:
        """Run a program and keep its results."""
        instrs = _instructions(text) if pure else pickle.loads(text)
        program = Program([self.values[n] for n in leaves], instrs, outputs, 0)
        self.values.update(zip(numbers, self.engine.run(program, keep), strict=True))

    def do_close(self) -> None:
        """Stop serving."""
        self.open = False


def _portable(error: Exception) -> Exception:
    """Return an exception that can be pickled: itself, or its text."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        text = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            text.add_note(note)
        return text


@lru_cache(maxsize=256)
def _instructions(text: bytes) -> list:
    """Return the instructions of a program; loops send the same ones again and again."""
    return pickle.loads(text)


def main(folder: str) -> None:
    """Connect to the driver and serve it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the driver's
    comm = world_comm()
    with open(os.path.join(folder, "key"), "rb") as f:
        key = f.read()
    connection = Client(os.path.join(folder, "socket"), "AF_UNIX", authkey=key)
    connection.send_bytes(comm.rank.to_bytes(8, "little") + os.getpid().to_bytes(8, "little"))
    engine = LocalEngine(World(comm), Env(comm.size, settings.grid, settings.chunk_size), driven=True)
    Worker(connection, engine).serve()


if __name__ == "__main__":
    main(sys.argv[1])
