"""The ``pypto`` command: ``pypto run -n P script.py``, ``pypto info``."""

import argparse
import contextlib
import importlib.metadata
import os
import platform
import signal
import subprocess
import sys

from pypto.comm import launch
from pypto.errors import BackendUnavailable

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pypto", description="Run pypto programs and show what they would run on.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a script on several ranks")
    run.add_argument("-n", "--ranks", type=int, default=None, help="number of ranks (default: one per core)")
    run.add_argument("--threads", type=int, default=None, help="kernel threads per rank (default: cores / ranks)")
    run.add_argument("script", help="the script, as given to python")
    run.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    commands.add_parser("info", help="print versions, MPI library, BLAS and devices")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Entry point of the command."""
    options = _parser().parse_args(argv)
    return info() if options.command == "info" else run(options)


def run(options: argparse.Namespace) -> int:
    """Start the ranks, wait for them and return the exit status."""
    size = options.ranks if options.ranks is not None else launch.cores()
    if size < 1:
        print(f"pypto run: -n {size} is not allowed; give a positive number", file=sys.stderr)
        return 2
    if options.threads is not None and not 1 <= options.threads <= 64:
        print(f"pypto run: --threads {options.threads} is not allowed; give 1 to 64", file=sys.stderr)
        return 2
    if not os.path.exists(options.script):
        print(f"pypto run: there is no file {options.script!r}", file=sys.stderr)
        return 2
    try:
        command, env = launch.mpiexec_command(size, options.threads)
    except BackendUnavailable as error:
        print(f"pypto run: {error}", file=sys.stderr)
        return 1
    print(launch.threads_line(size, int(env["OMP_NUM_THREADS"]), "mpi"), file=sys.stderr, flush=True)
    env["PYPTO_SAID"] = "1"
    program = [sys.executable, "-P", "-m", "pypto.run.script", options.script, *options.args]
    process = subprocess.Popen([*command, *program], env=env)
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    while True:
        try:
            status = process.wait()
            break
        except KeyboardInterrupt:
            continue  # mpiexec has had the signal too, and ends its ranks
    if status:
        print(f"pypto run: a rank failed or died; mpiexec ended with status {status}", file=sys.stderr)
    return status if status >= 0 else 128 - status


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def info() -> int:
    """Print what this installation runs on."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    print(f"pypto      {_version('pypto-linalg')} in {os.path.dirname(__file__)}")
    print(f"python     {platform.python_version()} on {platform.platform()}")
    for name in ("numpy", "scipy", "mpi4py", "threadpoolctl"):
        print(f"{name:<10} {_version(name)}")
    print(f"mpiexec    {launch.mpiexec_path() or 'not found: pip install pypto-linalg[mpich]'}")
    print(f"mpi        {_mpi_library()}")
    for pool in threadpool_info():
        if pool["user_api"] == "blas":
            print(
                f"blas       {pool['internal_api']} {pool['version']}, {pool['num_threads']} thread(s), "
                f"{pool.get('architecture')}"
            )
    print(f"devices    {launch.cores()} CPU core(s)")
    size = launch.launched_size()
    print(f"launch     {'one process' if size is None else f'{size} ranks'}")
    print("backends   mpi: " + ("yes" if launch.mpiexec_path() else "no") + "; gloo, nccl, hccl: not in this version")
    return 0


def _mpi_library() -> str:
    """Ask in a process of its own, since asking starts MPI."""
    code = "from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0].strip(chr(0)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else "no MPI library can be loaded"


if __name__ == "__main__":
    sys.exit(main())
