"""Launching: whether this process is one of several ranks, how to start some, and how many threads each may use."""

import os
import shutil
import sys
from typing import Any

from pypto.errors import BackendUnavailable

__all__ = ["cores", "launched_size", "limit_threads", "mpiexec_command", "mpiexec_path", "rank_environment", "threads_line"]

#: Variables by which launchers tell their ranks the size of the world.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")

_controller: Any = None


def cores() -> int:
    """Return the number of cores that this process may use: its affinity mask, and the quota of its control group."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as f:
            quota, period = f.read().split()
        if quota != "max":
            n = min(n, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass
    return n


def launched_size() -> int | None:
    """Return the number of ranks that a launcher has started: None if this process was started alone, 0 if only MPI knows."""
    for name in _SIZES:
        if name in os.environ:
            return int(os.environ[name])
    if "PMIX_RANK" in os.environ or "PMI_RANK" in os.environ:
        tasks = os.environ.get("SLURM_STEP_NUM_TASKS") or os.environ.get("SLURM_NTASKS")
        if tasks:
            return int(tasks)
        return 0
    return None


def mpiexec_path() -> str | None:
    """Return the mpiexec that belongs to this Python environment, else the first on PATH."""
    for folder in (os.path.join(sys.prefix, "bin"), os.path.dirname(sys.executable)):
        for name in ("mpiexec", "mpiexec.hydra"):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                return path
    return shutil.which("mpiexec")


def rank_environment(size: int, threads: int | None) -> dict[str, str]:
    """Return the environment of ranks on this node: threads per rank, and what Open MPI needs on small machines."""
    env = dict(os.environ)
    per_rank = str(threads or max(1, cores() // size))
    env.update(dict.fromkeys(_THREADS, per_rank))
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        env.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
        env.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    env.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
    env.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
    return env


def mpiexec_command(size: int, threads: int | None) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts `size` ranks, up to the program, and the environment to start it in.

    Raises
    ------
    BackendUnavailable
        No mpiexec is found; the message says how to install one.
    """
    path = mpiexec_path()
    if path is None:
        raise BackendUnavailable(
            f"{size} devices need an MPI library, and no mpiexec was found in {os.path.join(sys.prefix, 'bin')} or on PATH. "
            "Install one, for example: pip install 'pypto-linalg[mpich]'"
        )
    return [path, "-n", str(size)], rank_environment(size, threads)


def limit_threads(threads: int | None, comm: Any) -> int:
    """Set this process's BLAS threads so that ranks times threads are the node's cores, and return their number."""
    global _controller
    n = threads or max(1, cores() // (comm.node_size if comm is not None else 1))
    if _controller is None:
        import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be limited)
        from threadpoolctl import ThreadpoolController

        _controller = ThreadpoolController()
    _controller.limit(limits=n, user_api="blas")
    return n


def threads_line(size: int, threads: int, backend: str) -> str:
    """Say in one line what was started."""
    return f"pypto: {size} rank(s) x {threads} thread(s) on {cores()} core(s), {backend}"
