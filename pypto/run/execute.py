"""Running programs on this rank: the engine of one device and of an SPMD world."""

import sys
import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from pypto.comm.launch import limit_threads
from pypto.config import settings
from pypto.errors import DivergenceError
from pypto.graph.graph import Instr, Program
from pypto.incidents import act, ignore, wanted
from pypto.layout.layout import Layout
from pypto.ops.opdef import Env
from pypto.plan.schedule import Step, planned, result_bytes
from pypto.tiles.redistribute import redistribute
from pypto.tiles.status import agree, agreed, exchanged, is_agreed
from pypto.tiles.tiled import TiledArray, World

__all__ = ["LocalEngine", "open_index"]

#: Results of at least this many bytes are allocated in agreement: all ranks have the memory, or all raise MemoryError.
LARGE = 1 << 28


class LocalEngine:
    """Runs programs where this process is the rank: one device, or one of several that run the same script."""

    remote = False

    def __init__(self, world: World, env: Env, driven: bool = False) -> None:
        self.world = world
        self._env = env
        self._seen = settings.changes
        self._driven = driven
        self._compare = world.size > 1 and not driven  # a driver sends all ranks the same
        self._board = world.comm.board
        self._threads: int | None = None
        self._sequence = 0
        self._checksum = 0

    # what the context asks of an engine

    @property
    def env(self) -> Env:
        """The defaults from which layouts are chosen; settings that have changed since are taken over here."""
        if self._seen != settings.changes:
            self._seen = settings.changes
            self._env = replace(self._env, grid=settings.grid, nb=settings.chunk_size)
            self._set_threads()
        return self._env

    def choose_by(self, env: Env) -> None:
        """Choose layouts by these defaults from here on: a driver's, on a worker."""
        self._env = env

    def _set_threads(self) -> None:
        comm = self.world.comm if self.world.size > 1 else None
        if settings.num_workers is not None or self._threads is not None:
            self._threads = limit_threads(settings.num_workers, comm)

    def put(self, data: np.ndarray, layout: Layout) -> TiledArray:
        """Keep this rank's part of `data`, which every rank has."""
        out = TiledArray.empty(layout, data.dtype, self.world)
        if layout.holds(self.world.rank):
            out.local[...] = data[open_index(layout, self.world.rank)]
        return out

    def put_local(self, part: np.ndarray | None, layout: Layout, dtype: np.dtype) -> TiledArray:
        """Keep `part` as this rank's part. Collective: a wrong shape on one rank is an error on all."""
        error = None
        want = layout.local_shape(self.world.rank)
        out = TiledArray.empty(layout, dtype, self.world)
        if layout.holds(self.world.rank):
            if part is None or part.shape != want:
                got = None if part is None else part.shape
                error = ValueError(f"rank {self.world.rank} brings a part of shape {got}; its layout says {want}")
            else:
                out.local[...] = part
        agree(self.world, error)
        return out

    def note_input(self, checksum: int) -> None:
        """Remember the checksum of an input, to be compared at the next evaluation."""
        self._checksum = zlib.crc32(checksum.to_bytes(8, "little"), self._checksum)

    def gather(self, value: TiledArray) -> np.ndarray:
        """Return all of `value` as one array, on every rank. Collective."""
        self._sequence += 1
        self._meet(0, "gather")
        everywhere = self.env.replicated(value.shape)
        whole = redistribute(value, everywhere)
        return whole.local.copy() if whole is value or self.world.size == 1 else whole.local

    def item(self, value: tuple, index: int) -> TiledArray:
        """Return one of several results."""
        return value[index]

    def close(self) -> None:
        """Let go of nothing: the communicator lives as long as the process."""

    def part(self, value: TiledArray) -> np.ndarray:
        """Return this rank's part."""
        return value.local

    def run(self, program: Program, keep: list[int]) -> list[Any]:
        """Run `program` and return the values of its outputs and of the slots `keep`. Collective."""
        self._sequence += 1
        last = program.instrs[-1] if program.instrs else None
        try:
            steps, failure = planned(program, self.env), None
        except Exception as error:  # pure: the same on every rank that has the same program
            steps, failure = [], error
        # What runs without a message needs no meeting before it: one at the end serves for the incidents too.
        late = self._compare and failure is None and all(map(_alone, steps))
        if self._compare and not late:
            self._meet(program.fingerprint, last)
        if failure is not None:
            raise agreed(failure)
        values: list[Any] = []
        incidents = self.world.incidents
        before = incidents.listen()
        try:
            values = self._run_steps(program, steps, set(keep))
        except Exception as error:  # one that every rank raises; what happened before it comes first
            failure = error
        finally:
            ignore(before)
        if late and failure is None:
            self._meet(program.fingerprint, last)
        elif self.world.size > 1 or incidents:
            self._act()
        if failure is not None:
            raise failure
        if self._board is not None:
            self._board.set("between evaluations", self._sequence)
        return [values[s] for s in (*program.outputs, *keep)]

    # how it does it

    def _run_steps(self, program: Program, steps: list[Step], keep: set[int]) -> list[Any]:
        values = list(program.leaves)
        world, incidents = self.world, self.world.incidents
        for step in steps:
            incidents.at = instr = step.instr
            if instr.op.name == "item":
                values.append(values[instr.args[0]][instr.attrs[0]])
            else:
                ready = False
                try:
                    if self._board is not None:
                        self._board.set(f"{instr.op.name} built at {instr.where[0]}:{instr.where[1]}", self._sequence)
                    if result_bytes(step.out, instr.dtype) >= LARGE:
                        self._reserve(step)
                    ins = [values[a] for a in instr.args]
                    for k in range(len(ins)):
                        if step.moves(k):
                            ins[k] = redistribute(ins[k], step.want[k])
                        elif world.size > 1 and k in instr.op.overwrites and not _sole(ins[k], instr.args[k] in instr.frees):
                            ins[k] = TiledArray(step.want[k], ins[k].copy().local, world)
                        elif ins[k].layout is not step.want[k] and not instr.op.any_order:
                            # Equal, but written otherwise: the operator reads the grid axes that it asked for.
                            ins[k] = TiledArray(step.want[k], ins[k].local, world)
                    ready = True
                    value = step.run(world, ins, step.out, instr.attrs, instr.dtype)
                    if settings.debug:
                        _check(value, step)
                    values.append(value)
                except BaseException as error:
                    if not (ready and self._noted(error, step)):
                        self._failed(error, instr)
                        raise
                    values.append(_placeholder(step, world))
                del ins
            for slot in instr.frees:
                if slot not in keep:
                    values[slot] = None
        return values

    def _noted(self, error: BaseException, step: Step) -> bool:
        """Note what a step that does not communicate raised on this rank; return False of what is to be raised at once."""
        if self.world.size == 1 or not step.instr.op.local or is_agreed(error) or not isinstance(error, Exception):
            return False
        self.world.incidents.add("error", error)
        return True

    def _act(self, flagged: bool | None = None) -> None:
        """Give the warnings and raise the exception of this evaluation, if any rank has some. Collective.

        A driver does so itself, with what its workers send it.
        """
        if self._driven:
            return
        mine = wanted(self.world.incidents.take())
        if self.world.size > 1:
            if flagged is None:
                some = np.array([bool(mine)])
                self.world.comm.allreduce(some, "lor")
                flagged = bool(some[0])
            mine = exchanged(self.world, mine) if flagged else []
        act(mine)

    def _reserve(self, step: Step) -> None:
        error = None
        need = result_bytes(step.out, step.instr.dtype)
        try:
            np.empty(need, np.uint8)
        except MemoryError:
            error = MemoryError(f"{step.instr.op.name} needs {need:,} bytes on a device, which cannot be allocated")
        agree(self.world, error)

    def _failed(self, error: BaseException, instr: Instr) -> None:
        """Name the operation and the user's line; end the world where the other ranks know nothing of the failure."""
        if self.world.size > 1 and not is_agreed(error):
            self.world.comm.abort(f"{instr.op.name} built at {instr.where[0]}:{instr.where[1]} failed on one rank", error)
        note = f"while computing {instr.op.name!r}, built at {instr.where[0]}:{instr.where[1]}"
        if isinstance(error, Exception) and note not in getattr(error, "__notes__", ()):
            error.add_note(note)

    def _meet(self, fingerprint: int, what: Any) -> None:
        """Compare with the other ranks what is to run next: the count of evaluations, the program, the inputs."""
        if not self._compare:
            return
        mine = np.array([self._sequence, fingerprint, self._checksum, bool(self.world.incidents)], np.int64)
        extremes = np.concatenate([mine, -mine])
        self.world.comm.allreduce(extremes, "min")
        self._checksum = 0
        if np.array_equal(extremes[:3], -extremes[4:7]):
            if extremes[7]:
                self._act(flagged=True)
            return
        last = f"{what.op.name} built at {what.where[0]}:{what.where[1]}" if isinstance(what, Instr) else str(what)
        reports = self.world.comm.allgather_object((*mine[:3].tolist(), last))
        lines = "\n".join(
            f"  rank {r}: evaluation {s}, program {f:08x}, inputs {c:08x}, last operation {w}"
            for r, (s, f, c, w) in enumerate(reports)
        )
        raise agreed(
            DivergenceError(
                "the ranks ask for different computations. Every rank must run the same program on the same inputs:\n" + lines
            )
        )


def _alone(step: Step) -> bool:
    """Return whether a step runs without a message."""
    op = step.instr.op
    if op.name == "item":
        return True
    return op.local and not any(map(step.moves, range(len(step.have)))) and result_bytes(step.out, step.instr.dtype) < LARGE


def _placeholder(step: Step, world: World) -> TiledArray:
    """Return what stands for the result of a failed step, so that this rank completes the communication of the others."""
    value = TiledArray.empty(step.out, step.instr.dtype, world)
    value.local[...] = 0
    return value


def _check(value: Any, step: Step) -> None:
    """Raise RuntimeError where a result is not what its layout and its dtype announce. Debug mode looks at every one."""
    announced = step.out, step.instr.dtype
    made = zip(value, *announced, strict=True) if isinstance(value, tuple) else [(value, *announced)]
    for v, layout, dtype in made:
        shape = layout.local_shape(v.world.rank)
        if type(v.local) is not np.ndarray or v.local.shape != shape or v.dtype != dtype or v.layout != layout:
            got = f"{type(v.local).__name__} of shape {np.shape(v.local)}, {v.dtype}, layout {v.layout}"
            raise RuntimeError(f"{step.instr.op.name} made a {got}; announced are shape {shape}, {dtype}, layout {layout}")


def open_index(layout: Layout, rank: int):
    """Return an index that picks this rank's part out of a whole array."""
    if not layout.shape:
        return ()
    picks = [layout.indices(a, rank) for a in range(len(layout.shape))]
    slices = [_as_slice(i, n) for i, n in zip(picks, layout.shape, strict=True)]
    return tuple(slices) if None not in slices else np.ix_(*picks)


def _as_slice(index: np.ndarray, n: int) -> slice | None:
    if len(index) == n:
        return slice(None)
    if len(index) == 0:
        return slice(0, 0)
    if index[-1] - index[0] == len(index) - 1:
        return slice(int(index[0]), int(index[-1]) + 1)
    return None


def _sole(a: TiledArray, dies: bool) -> bool:
    """Return whether the buffer of `a` may be worked on in place: nothing needs it later and nobody else sees it.

    References counted: of the array by the list of values, the list of operands, the parameter and the call; of the
    buffer by the array and the call.
    """
    return dies and a.local.base is None and sys.getrefcount(a) <= 4 and sys.getrefcount(a.local) <= 2
