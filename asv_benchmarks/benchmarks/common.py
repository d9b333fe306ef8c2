"""Launching ranks for a benchmark and taking the slowest one's time."""

import json
import os
import subprocess
import sys

from pypto.comm import launch

HERE = os.path.dirname(os.path.abspath(__file__))


def clean_environment(env):
    """Remove settings that slow a current BLAS down."""
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "NVPL_BLAS_DEBUG_CPU_TYPE"):
        env.pop(name, None)
    return env


def ranks(size, case, threads=1, timeout=600, **options):
    """Run ``_ranks.py case options`` on `size` ranks and return what rank 0 reports: times are those of the slowest rank."""
    command, env = launch.mpiexec_command(size, threads)
    program = [sys.executable, "-P", os.path.join(HERE, "_ranks.py"), case, json.dumps(options)]
    done = subprocess.run(
        [*command, *program], env=clean_environment(env), capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def alone(case, threads=2, timeout=600, **options):
    """Run a case in one plain process."""
    env = clean_environment(launch.rank_environment(1, threads))
    program = [sys.executable, "-P", os.path.join(HERE, "_ranks.py"), case, json.dumps(options)]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])
