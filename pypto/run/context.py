"""Start and stop: which devices there are, who runs the programs, and the context that arrays belong to."""

import atexit
import os
import sys
from typing import Any

import numpy as np

from pypto.comm import launch
from pypto.comm.comm import SerialComm
from pypto.comm.mpi import world_comm
from pypto.config import Settings, parse_bytes, settings
from pypto.dtypes import checked
from pypto.errors import BackendUnavailable, ContextError
from pypto.graph.graph import Node, cut, sampled_checksum, user_line
from pypto.incidents import tell
from pypto.layout.layout import Layout
from pypto.ops.opdef import Env, register
from pypto.run.execute import LocalEngine
from pypto.tiles.tiled import World

__all__ = ["Context", "current", "finalize", "init"]

BACKENDS = ("auto", "mpi", "gloo", "nccl", "hccl")
STRATEGIES = ("auto", "data", "model", "pipeline")

_context: "Context | None" = None

#: The row of values that exist already.
LEAF = register(
    name="leaf",
    infer=lambda shapes, dtypes, attrs: (attrs[0], attrs[1]),
    place=lambda env, layouts, out_shape, attrs: ((), env.layout(out_shape)),
    run=None,
    pure=False,
    family="leaf",
)


class Context:
    """A set of devices and the engine that runs programs on them. Made by :func:`init`.

    Attributes
    ----------
    grid : tuple of int
        The default process grid.
    devices : list of int
    rank : int
        This process's rank; 0 on a driver.
    size : int
        Number of devices.
    backend : str
    memory_limit : int or None
        Bytes per device.
    """

    def __init__(self, engine: Any, request: dict[str, Any], backend: str, devices: list[int]) -> None:
        self.engine = engine
        self.request = request
        self.backend = backend
        self.devices = devices
        self.size = len(devices)
        self.rank = 0 if engine.remote else engine.world.rank
        self.alive = True
        self.pending = 0
        self._local = not engine.remote and self.size == 1

    @property
    def env(self) -> Env:
        """The defaults from which layouts are chosen."""
        return self.engine.env

    @property
    def grid(self) -> tuple[int, ...]:
        """The default process grid for matrices."""
        return self.env.layout((self.size * 2,) * 2).grid.shape

    @property
    def memory_limit(self) -> int | None:
        """Bytes per device that a plan may use; None: no limit."""
        return settings.memory_limit

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *exc: object) -> None:
        self.finalize()

    def __repr__(self) -> str:
        kind = "driver" if self.engine.remote else "one device" if self.size == 1 else f"rank {self.rank}"
        return f"<pypto context: {self.size} device(s), backend {self.backend}, grid {self.grid}, {kind}>"

    def finalize(self) -> None:
        """End the context; its arrays can no longer be computed. Calling it again does nothing."""
        global _context
        if self.alive:
            self.alive = False
            self.engine.close()
            if _context is self:
                _context = None

    def check(self) -> None:
        """Raise ContextError once the context is closed."""
        if not self.alive:
            raise ContextError(
                "this array belongs to a context that is closed. Create arrays after the init() whose devices they use"
            )

    # nodes and values

    def note(self, node: Node) -> None:
        """Count a new node; run it once `max_pending` wait, so that memory stays bounded. Program order decides."""
        self.pending += 1
        if settings.eager or self.pending >= settings.max_pending:
            self.compute([node])

    def compute(self, nodes: list[Node]) -> None:
        """Evaluate nodes together. Collective in an SPMD program."""
        self.check()
        todo = []
        for node in nodes:
            if node.value is None:
                owner = node.inputs[0] if node.op.name == "item" else node
                if owner.value is None:
                    todo.append(owner)
        if not todo and self._local:
            self._settle_items(nodes)
            return
        program, _, slots = cut(todo, fingerprint=not self._local and not self.engine.remote)
        kept: dict[int, Node] = {}
        for instr in program.instrs:
            if instr.op.kept:
                kept = self._kept(todo, slots)
                break
        values = self.engine.run(program, list(kept))
        self.pending = 0
        for node, value in zip(todo, values, strict=False):
            _settle(node, value)
        for slot, value in zip(kept, values[len(todo) :], strict=True):
            _settle(kept[slot], value)
        self._settle_items(nodes)

    def _settle_items(self, nodes: list[Node]) -> None:
        for node in nodes:
            if node.value is None and node.op.name == "item":
                _settle(node, self.engine.item(node.inputs[0].value, node.attrs[0]))

    def _kept(self, todo: list[Node], slots: dict[int, int]) -> dict[int, Node]:
        """Return the factorisations among the nodes to be computed, by slot."""
        found: dict[int, Node] = {}
        stack, seen, out = list(todo), set(), {n.number for n in todo}
        while stack:
            node = stack.pop()
            if node.number in seen or node.value is not None:
                continue
            seen.add(node.number)
            if node.op.kept and node.number not in out:
                found[slots[node.number]] = node
            stack.extend(node.inputs)
        return dict(sorted(found.items()))

    def put(self, data: np.ndarray, dist: Any) -> Node:
        """Capture a NumPy array as a leaf, in the layout that `dist` asks for."""
        layout = self.env.layout(data.shape, dist)
        if not self._local and not self.engine.remote:
            self.engine.note_input(sampled_checksum(data))
        value = self.engine.put(data, layout)
        return Node(LEAF, (), (), data.shape, data.dtype, self, value)

    def put_local(self, part: Any, layout: Layout, dtype: Any) -> Node:
        """Make a leaf of the parts that the ranks bring."""
        value = self.engine.put_local(part, layout, checked(dtype))
        return Node(LEAF, (), (), layout.shape, checked(dtype), self, value)


def _settle(node: Node, value: Any) -> None:
    """Give a node its value and let go of what it was made from."""
    if node.value is None:
        node.value = value
        node.inputs = ()


def forget(engine: Any) -> None:
    """Drop the context whose engine has died, so that the next operation starts another."""
    global _context
    if _context is not None and _context.engine is engine:
        _context.alive = False
        _context = None


def current() -> Context:
    """Return the current context; the first call starts one with the defaults."""
    if _context is None:
        return init()
    return _context


def init(
    devices: int | list[int] | None = None,
    backend: str = "auto",
    memory_limit: int | str | None = None,
    grid: str | tuple[int, ...] = "auto",
    chunk_size: str | int = "auto",
    num_workers: str | int = "auto",
    parallel_strategy: str = "auto",
    mixed_precision: bool = True,
    checkpointing: bool = False,
    gradient_accumulation: int = 1,
) -> Context:
    """Start pypto on some devices.

    Parameters
    ----------
    devices : int or list of int, optional
        Number or ids of the devices. Default: all ranks of the launch, one device each; outside a launcher, one. In a
        plain ``python`` process or a notebook more than one device starts a world of that many workers, which this
        process drives.
    backend : {"auto", "mpi", "gloo", "nccl", "hccl"}
        Collectives, and with them the kind of device.
    memory_limit : int or str, optional
        Bytes per device, or text such as ``"30GB"``. A plan that would exceed it raises MemoryLimitError before it runs.
    grid : tuple of int, optional
        Default process grid; its product is the number of devices.
    chunk_size : int, optional
        Tile size nb of block-cyclic matrices, 1 ... 10000.
    num_workers : int, optional
        Kernel threads per device, 1 ... 64. Default: cores of the node divided by the ranks on it.
    parallel_strategy : str
        "auto", "data", "model", "pipeline", or several joined by "+". Like the last two it is for neural networks, which this
        version does not have: another value than the default is a warning.
    mixed_precision : bool
        Whether `linalg.solve` may factor large double precision systems in single precision and refine.
    checkpointing : bool
    gradient_accumulation : int
        1 ... 32.

    Returns
    -------
    Context
        Also a context manager.

    Raises
    ------
    ValueError
        An argument out of range, or a grid that does not match the devices.
    BackendUnavailable
        The backend, or that many devices, cannot be had; the message says what is missing.

    Notes
    -----
    A second call with the same arguments returns the context there is; with others it closes it first.

    Examples
    --------
    >>> import pypto
    >>> ctx = pypto.init()
    >>> ctx.rank
    0
    """
    global _context
    request = dict(locals())
    if _context is not None and _context.alive:
        if _context.request == request:
            return _context
        _context.finalize()
    wanted = _check_request(request)
    world_size = launch.launched_size()
    if world_size is not None:
        world_size = world_comm().size
    count = len(wanted) if wanted is not None else (world_size or 1)
    devices = wanted if wanted is not None else list(range(count))
    grid_shape = None if grid == "auto" else tuple(grid)
    if grid_shape is not None and int(np.prod(grid_shape)) != count:
        raise ValueError(
            f"grid={grid_shape} has {int(np.prod(grid_shape))} places for {count} device(s); the product must match"
        )
    settings.assign(
        {
            "memory_limit": parse_bytes(memory_limit),
            "chunk_size": None if chunk_size == "auto" else chunk_size,
            "grid": grid_shape,
            "num_workers": None if num_workers == "auto" else num_workers,
            "mixed_precision": mixed_precision,
        }
    )
    crowded = world_comm().crowded if world_size is not None and count > 1 else count > launch.cores()
    env = Env(count, settings.grid, settings.chunk_size, crowded)
    engine = _engine(count, devices, world_size, env)
    _context = Context(engine, request, "mpi" if backend == "auto" else backend, devices)
    return _context


def _engine(count: int, devices: list[int], world_size: int | None, env: Env):
    """Return the engine for `count` devices: this process alone, its place in a launched world, or a driver."""
    threads = settings.num_workers
    if world_size is not None:
        if count != world_size or sorted(devices) != list(range(count)):
            raise BackendUnavailable(
                f"devices={devices} asked for in a launch of {world_size} rank(s). Leave devices out, or launch {count} ranks"
            )
        comm = world_comm()
        used = launch.limit_threads(threads, comm)
        if comm.rank == 0 and comm.size > 1:
            _say(comm.size, used)
        return LocalEngine(World(comm), env)
    if count == 1:
        if threads is not None:
            launch.limit_threads(threads, None)
        return LocalEngine(World(SerialComm()), env)
    from pypto.run.driver import DriverEngine  # here, since one device does without its imports

    _say(count, threads or max(1, launch.cores() // count))
    return DriverEngine(count, env, threads, forget)


def _say(size: int, threads: int) -> None:
    """Say in one line what several ranks run on, where `pypto run` has not said it already."""
    if "PYPTO_SAID" not in os.environ:
        print(launch.threads_line(size, threads, "mpi"), file=sys.stderr, flush=True)


def _check_request(request: dict[str, Any]) -> list[int] | None:
    """Check what :func:`init` was given before anything starts; return the devices."""
    _choice("backend", request["backend"], BACKENDS)
    if request["backend"] not in ("auto", "mpi"):
        raise BackendUnavailable(_missing(request["backend"]))
    for word in str(request["parallel_strategy"]).split("+"):
        _choice("parallel_strategy", word, STRATEGIES)
    for name in ("mixed_precision", "checkpointing"):
        if not isinstance(request[name], bool):
            raise ValueError(f"{name}={request[name]!r} is not allowed; give True or False")
    steps = request["gradient_accumulation"]
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= 32:
        raise ValueError(f"gradient_accumulation={steps!r} is not allowed; give an integer from 1 to 32")
    for name, default in (("parallel_strategy", "auto"), ("checkpointing", False), ("gradient_accumulation", 1)):
        if request[name] != default:
            text = f"{name}={request[name]!r} has no effect: it is for neural networks, which this version does not have"
            tell(UserWarning(text), user_line())
    trial = Settings()
    trial.memory_limit, trial.chunk_size = request["memory_limit"], request["chunk_size"]
    trial.num_workers, trial.grid = request["num_workers"], request["grid"]
    trial.check()
    devices = request["devices"]
    if devices is None:
        return None
    if isinstance(devices, (int, np.integer)) and not isinstance(devices, bool):
        if devices < 1:
            raise ValueError(f"devices={devices!r} is not allowed; give a positive number, a list of ids, or None")
        return list(range(int(devices)))
    if isinstance(devices, (list, tuple)) and devices and all(isinstance(d, int) and d >= 0 for d in devices):
        if len(set(devices)) != len(devices):
            raise ValueError(f"devices={devices!r} names a device twice")
        return list(devices)
    raise ValueError(f"devices={devices!r} is not allowed; give a positive number, a list of ids, or None")


def _choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is not allowed; choose from {', '.join(map(repr, allowed))}")


def _missing(backend: str) -> str:
    if backend == "hccl":
        paths = [os.environ.get(v) for v in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")]
        return (
            "backend='hccl' needs Ascend's CANN toolkit and an Ascend NPU, and this version of pypto does not yet drive one "
            f"(ASCEND_HOME_PATH={paths[0]}, ASCEND_TOOLKIT_HOME={paths[1]}). Use backend='mpi'; on NVIDIA GPUs the word "
            "is 'nccl'"
        )
    if backend == "nccl":
        return (
            "backend='nccl' needs NVIDIA GPUs and CuPy, and this version of pypto does not yet drive them. "
            "Use backend='mpi'; on Ascend NPUs the word is 'hccl'"
        )
    return "backend='gloo' needs torch.distributed, and this version of pypto does not yet drive it. Use backend='mpi'"


def finalize() -> None:
    """End the current context, if there is one."""
    if _context is not None:
        _context.finalize()


atexit.register(finalize)
