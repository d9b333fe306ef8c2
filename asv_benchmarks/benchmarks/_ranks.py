"""The cases that benchmarks run, on every rank of a world or in one process; the last line of rank 0 is a JSON report.

Repeats alternate between the case and the rate of one-thread GEMM, so that both see the same machine.
"""

import json
import resource
import statistics
import sys
import time

import numpy as np

import pypto


def gemm_rate(engine, dtype, n=2048):
    """Return GFLOP/s of one local product on this rank's threads."""
    rng = np.random.default_rng(0)
    a = np.asfortranarray(rng.random((n, n)).astype(dtype))
    c = np.empty_like(a)
    start = time.perf_counter()
    engine.world.device.gemm(1.0, a, a, 0.0, c)
    return 2 * n**3 / (time.perf_counter() - start) / 1e9


def _matrix(n, dtype, shift=0.0):
    return pypto.from_function(lambda i, j: np.cos(1.3 * i + 0.7 * (j * j % 1000) + shift), (n, n), dtype=dtype).compute()


def _random(n, dtype, seed=0):
    """Rows of standard normal numbers, the same on any number of ranks."""

    def rows(i, j):
        return np.stack([np.random.default_rng([seed, int(r)]).standard_normal(n)[j.ravel()] for r in i.ravel()])

    return pypto.from_function(rows, (n, n), dtype=dtype).compute()


def matmul(n=4096, dtype="float64"):
    """The product of two square matrices."""
    a, b = _matrix(n, dtype), _matrix(n, dtype, 1.0)
    return lambda: (a @ b).compute(), 2 * n**3


def solve(n=4096, dtype="float64", nrhs=1):
    """One system of a random matrix."""
    a, b = _random(n, dtype), pypto.ones((n, nrhs) if nrhs > 1 else n, dtype=dtype).compute()
    return lambda: pypto.linalg.solve(a, b).compute(), 2 * n**3 // 3


def lu(n=4096, dtype="float64"):
    """LU with partial pivoting."""
    a = _random(n, dtype)
    return lambda: pypto.linalg.lu_factor(a)[0].compute(), 2 * n**3 // 3


def cholesky(n=4096, dtype="float64"):
    """Cholesky of a positive definite matrix."""
    a = (
        pypto.from_function(lambda i, j: 1.0 / (1 + abs(i - j)), (n, n), dtype=dtype) + n * pypto.eye(n, dtype=dtype)
    ).compute()
    return lambda: pypto.linalg.cholesky(a, lower=True).compute(), n**3 // 3


def redistribute(n=4096, dtype="float64", source="row", target="block_cyclic"):
    """A whole matrix from one layout to another; flops count bytes."""
    a = pypto.asarray(np.zeros((n, n), dtype), distribution=source).compute()
    return lambda: a.repartition(target).compute(), n * n * np.dtype(dtype).itemsize


def small(n=10, dtype="float64"):
    """The overhead of one operation on a small array."""
    a, b = pypto.asarray(np.ones((n, n), dtype)), pypto.asarray(np.ones((n, n), dtype))
    return lambda: (a + b).compute(), n * n


CASES = {f.__name__: f for f in (matmul, solve, lu, cholesky, redistribute, small)}


def hand_written_matmul(n, dtype):
    """The product as one would shard it by hand with mpi4py: slice, multiply, assemble."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    p, r = comm.size, comm.rank
    rng = np.random.default_rng(0)
    a = rng.random((n, n)).astype(dtype)  # every rank holds all of A, and its slice of B
    b = np.ascontiguousarray(rng.random((n, n)).astype(dtype)[:, r * n // p : (r + 1) * n // p])

    def run():
        part = a @ b
        parts = comm.gather(part, root=0)
        return np.concatenate(parts, axis=1) if r == 0 else None

    return run, 2 * n**3


def main():
    """Run a case and report its median time on the slowest rank."""
    case, options = sys.argv[1], json.loads(sys.argv[2])
    repeats = options.pop("repeats", 5)
    settings = {k: options.pop(k) for k in ("chunk_size", "num_workers", "devices") if k in options}
    if "grid" in options:
        settings["grid"] = tuple(options.pop("grid"))
    ctx = pypto.init(**settings)
    dtype = options.get("dtype", "float64")
    local = not ctx.engine.remote
    barrier = ctx.engine.world.comm.barrier if local else lambda: None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run, flops = hand_written_matmul(options["n"], dtype) if case == "by_hand" else CASES[case](**options)
    run()
    if local:
        gemm_rate(ctx.engine, dtype)
    times, rates = [], []
    inner = 200 if case == "small" else 1
    for _ in range(repeats):
        if local and case != "small":
            barrier()
            rates.append(gemm_rate(ctx.engine, dtype))
        barrier()
        start = time.perf_counter()
        for _ in range(inner):
            run()
        barrier()
        times.append((time.perf_counter() - start) / inner)
    median = statistics.median(times)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = [median, statistics.median(rates) if rates else 0.0, peak / 1024, before / 1024]
    if local and ctx.size > 1:
        gathered = ctx.engine.world.comm.allgather(np.array(report))
        report = [
            float(gathered[:, 0].max()),
            float(gathered[:, 1].mean()),
            float(gathered[:, 2].max()),
            float(gathered[:, 3].max()),
        ]
    if ctx.rank == 0:
        print(
            json.dumps(
                {
                    "seconds": report[0],
                    "gflops": flops / report[0] / 1e9,
                    "gemm": report[1],
                    "peak_mib": report[2],
                    "base_mib": report[3],
                }
            )
        )


if __name__ == "__main__":
    main()
