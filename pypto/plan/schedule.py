"""From a program to a schedule: the layouts of every instruction, and the bytes that running it takes. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pypto.config import settings
from pypto.errors import MemoryLimitError
from pypto.graph.graph import Instr, Program
from pypto.layout.layout import Layout
from pypto.ops.opdef import Env

__all__ = ["Step", "dtype_of", "layout_of", "peak_bytes", "planned", "result_bytes", "schedule"]


@dataclass(slots=True, eq=False)
class Step:
    """An instruction with its decisions: layouts wanted of the operands, layout (or layouts) of the result, and what runs."""

    instr: Instr
    have: tuple
    want: tuple[Layout, ...]
    out: Layout | tuple[Layout, ...]
    run: Callable[..., Any] | None

    def moves(self, k: int) -> bool:
        """Return whether operand `k` must be redistributed before the instruction runs."""
        have, want = self.have[k], self.want[k]
        return have != want and not (self.instr.op.any_order and have.same_ownership(want))


def schedule(program: Program, layouts: list, env: Env) -> list[Step]:
    """Choose the layouts of every instruction, in program order; `layouts` are those of the leaves."""
    known = list(layouts)
    steps = []
    for instr in program.instrs:
        have = tuple(known[a] for a in instr.args)
        if instr.op.name == "item":
            step = Step(instr, have, have, have[0][instr.attrs[0]], None)
        else:
            want, out = instr.op.place(env, list(have), instr.shape, instr.attrs)
            step = Step(instr, have, want, out, instr.op.on(env.size))
        known.append(step.out)
        steps.append(step)
    return steps


def planned(program: Program, env: Env) -> list[Step]:
    """Return the schedule of `program`, once it is known to fit the memory limit."""
    if settings.debug:
        verify(program)
    steps = schedule(program, [layout_of(v) for v in program.leaves], env)
    if settings.memory_limit is not None:
        leaf_bytes = [result_bytes(layout_of(v), dtype_of(v)) for v in program.leaves]
        check_memory(program, steps, leaf_bytes, env, settings.memory_limit)
    return steps


def verify(program: Program) -> None:
    """Raise RuntimeError where a program is not well formed. Debug mode runs this before each evaluation.

    Every argument is defined before it is used and not freed yet, and every operator infers again the shape and dtype that
    its node announced.
    """
    layouts = [layout_of(v) for v in program.leaves]
    shapes = [tuple(x.shape for x in y) if isinstance(y, tuple) else y.shape for y in layouts]
    dtypes = [dtype_of(v) for v in program.leaves]
    freed: set[int] = set()
    for instr in program.instrs:
        if instr.slot != len(shapes) or any(a >= instr.slot or a in freed for a in instr.args):
            raise RuntimeError(f"{instr.op.name}: slot {instr.slot} uses {instr.args}, freed are {sorted(freed)}")
        inferred = instr.op.infer([shapes[a] for a in instr.args], [dtypes[a] for a in instr.args], instr.attrs)
        if inferred != (instr.shape, instr.dtype):
            raise RuntimeError(f"{instr.op.name} announced {instr.shape}, {instr.dtype}, but infers {inferred}")
        shapes.append(instr.shape)
        dtypes.append(instr.dtype)
        freed.update(instr.frees)
    if any(s in freed for s in program.outputs):
        raise RuntimeError(f"outputs {program.outputs} are freed: {sorted(freed)}")


def layout_of(value: Any) -> Any:
    """Return the layout of a value, or the layouts of several results."""
    return tuple(v.layout for v in value) if isinstance(value, tuple) else value.layout


def dtype_of(value: Any) -> Any:
    """Return the dtype of a value, or the dtypes of several results."""
    return tuple(v.dtype for v in value) if isinstance(value, tuple) else value.dtype


@lru_cache(maxsize=8192)
def _layout_bytes(layout: Layout, itemsize: int) -> int:
    return layout.max_local_size() * itemsize


def result_bytes(out, dtype) -> int:
    """Return the bytes of a result on the rank that holds most of it."""
    if isinstance(out, tuple):
        return sum(_layout_bytes(o, d.itemsize) for o, d in zip(out, dtype, strict=True))
    return _layout_bytes(out, dtype.itemsize)


def peak_bytes(program: Program, steps: list[Step], leaf_bytes: list[int], env: Env) -> tuple[int, Step | None]:
    """Return the largest number of bytes alive on one device while the schedule runs, and where that is."""
    sizes = dict(enumerate(leaf_bytes))
    live = sum(leaf_bytes)
    peak, at = live, None
    for step in steps:
        instr = step.instr
        moved = [
            _layout_bytes(w, _dtype_of(program, steps, a).itemsize)
            for k, (a, w) in enumerate(zip(instr.args, step.want, strict=True))
            if instr.op.name != "item" and step.moves(k)
        ]
        size = 0 if instr.op.view or instr.op.name == "item" else result_bytes(step.out, instr.dtype)
        extra = instr.op.workspace(step.want, instr.dtype, instr.attrs) if instr.op.workspace else 0
        # Messages are packed on one side and unpacked on the other: about as much again while an operand moves.
        transient = max([sum(moved) + max(moved, default=0), sum(moved) + size + extra])
        if live + transient > peak:
            peak, at = live + transient, step
        sizes[instr.slot] = size
        live += size - sum(sizes.get(s, 0) for s in instr.frees)
    return peak, at


def _dtype_of(program: Program, steps: list[Step], slot: int):
    n = len(program.leaves)
    return program.leaves[slot].dtype if slot < n else steps[slot - n].instr.dtype


def check_memory(program: Program, steps: list[Step], leaf_bytes: list[int], env: Env, limit: int) -> None:
    """Raise MemoryLimitError, naming the operation, where the schedule needs more than `limit` bytes on a device."""
    peak, step = peak_bytes(program, steps, leaf_bytes, env)
    if peak <= limit:
        return
    name, where = (step.instr.op.name, step.instr.where) if step else ("the operands", ("", 0))
    raise MemoryLimitError(
        f"{name} ({where[0]}:{where[1]}) needs {peak:,} bytes per device where memory_limit is {limit:,}. "
        f"Ways out: a smaller array or dtype, more than {env.size} device(s), or a higher memory_limit."
    )
