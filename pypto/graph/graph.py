"""The graph: nodes that say what is to be computed, and programs cut from it.

A node names an operator, its inputs and its attributes; shape and dtype are known when it is built. Building never
depends on the rank. :func:`cut` turns the nodes that some outputs need into a :class:`Program`: a flat list of
instructions in which equal subexpressions are one.
"""

import sys
import zlib
from itertools import count
from typing import Any

import numpy as np

__all__ = ["Instr", "Node", "Program", "cut", "sampled_checksum", "table", "user_line"]

#: The rows of the operator table by name; ``ops`` and ``linalg`` fill it. An instruction is pickled with the name of its row.
table: dict[str, Any] = {}

_numbers = count(1)


class Node:
    """One value of the graph.

    Attributes
    ----------
    op : OpDef
        The row of the operator table.
    inputs : tuple of Node
        Operands. Emptied once the node holds its value, so that what it was made from can be freed.
    attrs : tuple
        Everything else that the operator needs; hashable.
    shape, dtype
        Of the result; tuples of them where the operator has several results (``item`` picks one).
    value : TiledArray, remote reference or None
        The result once it is computed.
    number : int
        Creation number; equal on every rank, since every rank runs the same program.
    where : tuple of (str, int)
        File and line of the user's statement that built the node.
    """

    __slots__ = ("__weakref__", "attrs", "context", "dtype", "inputs", "number", "op", "shape", "value", "where")

    def __init__(self, op, inputs, attrs, shape, dtype, context, value=None) -> None:
        self.op = op
        self.inputs: tuple[Node, ...] = inputs
        self.attrs: tuple = attrs
        self.shape = shape
        self.dtype = dtype
        self.value: Any = value
        self.context = context
        self.number = next(_numbers)
        self.where = user_line()


def user_line() -> tuple[str, int]:
    """Return file and line of the innermost frame that is not pypto's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if name[:6] != "pypto." and name != "pypto":
            break
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class Instr:
    """One instruction: ``slot := op(slots of the arguments, attributes)``."""

    __slots__ = ("args", "attrs", "dtype", "frees", "key", "op", "shape", "slot", "where")

    def __init__(self, node: Node, slot: int, args: tuple[int, ...]) -> None:
        self.op, self.attrs, self.shape, self.dtype = node.op, node.attrs, node.shape, node.dtype
        self.where = node.where
        self.slot, self.args = slot, args
        self.frees: tuple[int, ...] = ()
        #: Equal for instructions that say the same; None where the operator is not pure.
        self.key: tuple | None = None

    def __reduce__(self):
        state = (self.op.name, self.attrs, self.shape, self.dtype, self.where, self.slot, self.args, self.frees)
        return _instr, state


def _instr(name: str, *fields: Any) -> Instr:
    """Return an instruction from its pickle, which names the operator."""
    instr = Instr.__new__(Instr)
    instr.op = table[name]
    for slot, value in zip(("attrs", "shape", "dtype", "where", "slot", "args", "frees"), fields, strict=True):
        setattr(instr, slot, value)
    return instr


class Program:
    """Instructions in program order; slots 0 ... leaves-1 hold the values that exist already."""

    __slots__ = ("fingerprint", "instrs", "leaves", "outputs")

    def __init__(self, leaves: list, instrs: list[Instr], outputs: list[int], fingerprint: int) -> None:
        self.leaves = leaves
        self.instrs = instrs
        self.outputs = outputs
        self.fingerprint = fingerprint


def _order(outputs: list[Node]) -> list[Node]:
    """Return the nodes that `outputs` need, operands first, in creation order, without recursion.

    An operand is always created before what uses it, so creation order is a topological order.
    """
    seen: dict[int, Node] = {}
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if node.number in seen:
            continue
        seen[node.number] = node
        if node.value is None:
            stack.extend(node.inputs)
    return [seen[number] for number in sorted(seen)]


def cut(outputs: list[Node], fingerprint: bool) -> tuple[Program, list[Node], dict[int, int]]:
    """Cut the program that computes `outputs`.

    Parameters
    ----------
    outputs : list of Node
    fingerprint : bool
        Whether to compute the program's fingerprint, by which the ranks see that they run the same one.

    Returns
    -------
    program : Program
        Its ``leaves`` are the values that the leaf nodes hold.
    leaves : list of Node
        The leaf nodes, in slot order.
    slots : dict
        Creation number to slot, of every node that takes part.
    """
    nodes = _order(outputs)
    leaves = [n for n in nodes if n.value is not None]
    slots = {n.number: s for s, n in enumerate(leaves)}
    known: dict[tuple, int] = {}
    instrs: list[Instr] = []
    # The fingerprint covers what is computed, from which leaves and in which order. Numbers are relative to the first
    # node, and text is hashed by CRC, since Python's own hash of text differs between processes.
    crc = zlib.crc32(repr([(n.shape, str(n.dtype)) for n in leaves]).encode()) if fingerprint else 0
    for node in nodes:
        if node.value is not None:
            continue
        args = tuple(slots[i.number] for i in node.inputs)
        # The text of the attributes tells 1 from 1.0 from True and 0.0 from -0.0, which compare equal.
        text = repr(node.attrs) if node.op.pure and node.attrs else ""
        key = (node.op.name, args, text) if node.op.pure else (node.number,)
        slot = known.get(key)
        if slot is None:
            slot = len(leaves) + len(instrs)
            instr = Instr(node, slot, args)
            if node.op.pure:
                instr.key = (*key, node.dtype, node.where)
            instrs.append(instr)
            known[key] = slot
            if fingerprint:
                crc = zlib.crc32(repr((node.op.name, args, node.shape, str(node.dtype), text)).encode(), crc)
        slots[node.number] = slot
    out = [slots[n.number] for n in outputs]
    _mark_frees(instrs, out, len(leaves))
    return Program([n.value for n in leaves], instrs, out, crc), leaves, slots


def _mark_frees(instrs: list[Instr], outputs: list[int], n_leaves: int) -> None:
    """Give each instruction the slots that nothing needs after it."""
    last: dict[int, Instr] = {}
    for instr in instrs:
        last[instr.slot] = instr
        for a in instr.args:
            last[a] = instr
    kept = set(outputs)
    frees: dict[int, list[int]] = {}
    for slot, instr in last.items():
        if slot not in kept and slot >= n_leaves:
            frees.setdefault(instr.slot, []).append(slot)
    for instr in instrs:
        instr.frees = tuple(frees.get(instr.slot, ()))


def sampled_checksum(data: np.ndarray) -> int:
    """Return a checksum of shape, dtype and up to 64 evenly spaced elements of `data`."""
    crc = zlib.crc32(f"{data.shape}{data.dtype}".encode())
    if data.size:
        step = max(1, data.size // 64)
        crc = zlib.crc32(data.ravel(order="K")[::step][:64].tobytes() if data.flags.forc else _sample(data, step), crc)
    return crc


def _sample(data: np.ndarray, step: int) -> bytes:
    return data.flat[:: max(step, 1)][:64].tobytes()
