"""What a computation will do, before it does it."""

from dataclasses import dataclass
from typing import Any

from pypto.graph.graph import cut
from pypto.layout.distribution import describe
from pypto.plan.schedule import dtype_of, layout_of, peak_bytes, result_bytes, schedule

__all__ = ["Plan", "explain"]


@dataclass(frozen=True)
class Plan:
    """The schedule of a computation as rows of text; print it.

    Attributes
    ----------
    rows : list of tuple
        Operation, shape, dtype, distribution, redistributed operands, flops, bytes per device.
    peak_bytes : int
        Largest number of bytes alive on one device, operands included.
    """

    rows: list[tuple[str, ...]]
    peak_bytes: int

    def __str__(self) -> str:
        head = ("operation", "shape", "dtype", "distribution", "moved", "flops", "bytes/device")
        table = [head, *self.rows]
        widths = [max(len(r[c]) for r in table) for c in range(len(head))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table]
        return "\n".join([*lines, f"peak {self.peak_bytes:,} bytes per device"])

    __repr__ = __str__


def explain(*arrays: Any) -> Plan:
    """Return the plan by which arrays would be computed: layouts, redistributions, flops and memory. Nothing runs.

    Examples
    --------
    >>> import pypto
    >>> plan = pypto.explain(pypto.ones((4, 4)) @ pypto.ones((4, 4)))
    >>> [row[0] for row in plan.rows]
    ['full', 'matmul']
    """
    nodes = [a._node for a in arrays]
    context = nodes[0].context
    program, _, _ = cut(nodes, fingerprint=False)
    steps = schedule(program, [layout_of(v) for v in program.leaves], context.env)
    peak, _ = peak_bytes(program, steps, [result_bytes(layout_of(v), dtype_of(v)) for v in program.leaves], context.env)
    shapes = {s: v.layout.shape for s, v in enumerate(program.leaves) if not isinstance(v, tuple)}
    rows = []
    for step in steps:
        i = step.instr
        shapes[i.slot] = i.shape
        moved = [str(k) for k in range(len(i.args)) if i.op.name != "item" and step.moves(k)]
        flops = i.op.cost([shapes.get(a, ()) for a in i.args], i.shape, i.attrs)
        where = " ".join(str(describe(o, context.size)) for o in (step.out if isinstance(step.out, tuple) else (step.out,)))
        rows.append(
            (
                i.op.name,
                str(i.shape),
                " ".join(map(str, i.dtype)) if isinstance(i.dtype, tuple) else str(i.dtype),
                where,
                "operand " + ", ".join(moved) if moved else "",
                f"{flops:.3g}" if flops else "",
                f"{result_bytes(step.out, i.dtype):,}",
            )
        )
    return Plan(rows, peak)
