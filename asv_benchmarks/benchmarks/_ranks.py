"""The cases that benchmarks run, on every rank of a world or in one process; the last line of rank 0 is a JSON report.

Repeats alternate between the case and the rate of one-thread GEMM, so that both see the same machine.
"""

import json
import statistics
import sys
import threading
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
    """Uniform numbers in (-0.5, 0.5) by hashing the indices (splitmix64), the same on any number of ranks."""

    def block(i, j):
        x = (i * n + j + seed * n * n).astype(np.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            x ^= x >> np.uint64(shift)
            x *= np.uint64(factor)
        return x / 2.0**64 - 0.5

    return pypto.from_function(block, (n, n), dtype=dtype).compute()


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


def qr_r(n=4096, dtype="float64", pivoting=False):
    """The triangle of a QR factorisation of a square matrix."""
    a = _random(n, dtype)
    return lambda: pypto.linalg.qr(a, mode="r", pivoting=pivoting)[0].compute(), 4 * n**3 // 3


def qr_pivoted(n=2000, dtype="float64"):
    """The same with column pivoting."""
    return qr_r(n, dtype, pivoting=True)


def qr_economic(n=4096, dtype="float64"):
    """Q and R of a square matrix."""
    a = _random(n, dtype)
    return lambda: pypto.compute(*pypto.linalg.qr(a, mode="economic")), 8 * n**3 // 3


def _tall(m, n, dtype):
    def block(i, j):
        return np.sin(0.3 * (i + 1) * (j + 1) + 0.01 * j * j) + (i % n == j)

    return pypto.from_function(block, (m, n), dtype=dtype, distribution="row").compute()


def tall_qr(n=64, m=200_000, dtype="float64"):
    """Q and R of a tall matrix in blocks of rows."""
    a = _tall(m, n, dtype)
    return lambda: pypto.compute(*pypto.linalg.qr(a, mode="economic")), 4 * m * n * n


def lstsq(n=500, m=20_000, dtype="float64"):
    """Least squares of a tall matrix."""
    a, b = _tall(m, n, dtype), pypto.ones(m, dtype=dtype).compute()
    return lambda: pypto.linalg.lstsq(a, b)[0].compute(), 2 * m * n * n


def redistribute(n=4096, dtype="float64", source="row", target="block_cyclic"):
    """A whole matrix from one layout to another; flops count bytes."""
    a = pypto.asarray(np.zeros((n, n), dtype), distribution=source).compute()
    return lambda: a.repartition(target).compute(), n * n * np.dtype(dtype).itemsize


def small(n=10, dtype="float64"):
    """The overhead of one operation on a small array."""
    a, b = pypto.asarray(np.ones((n, n), dtype)), pypto.asarray(np.ones((n, n), dtype))
    return lambda: (a + b).compute(), n * n


CASES = {
    f.__name__: f for f in (matmul, solve, lu, cholesky, qr_r, qr_pivoted, qr_economic, tall_qr, lstsq, redistribute, small)
}


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


def pss():
    """Return this process's proportional share of memory, in MiB: memory that ranks share counts once."""
    with open("/proc/self/smaps_rollup") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Pss:")) / 1024


class Watch:
    """The largest share of memory while a block runs, sampled every 20 ms."""

    def __enter__(self):
        self.peak, self._stop = pss(), threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def _sample(self):
        while not self._stop.wait(0.02):
            self.peak = max(self.peak, pss())

    def __exit__(self, *exc):
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, pss())


def beside_scipy(n):
    """Return the median ratio of pypto's time for a solve on one device to SciPy's, over alternating repeats."""
    import scipy.linalg

    m, one = np.random.default_rng(0).standard_normal((n, n)), np.ones(n)
    a, b = pypto.asarray(m).compute(), pypto.asarray(one).compute()
    mine, theirs = (lambda: pypto.linalg.solve(a, b).compute()), (lambda: scipy.linalg.solve(m, one))
    ratios = []
    for k in range(16):
        times = []
        for run in (mine, theirs):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        if k:
            ratios.append(times[0] / times[1])
    return statistics.median(ratios)


def main():
    """Run a case and report its median time on the slowest rank."""
    case, options = sys.argv[1], json.loads(sys.argv[2])
    repeats = options.pop("repeats", 5)
    if case == "beside_scipy":
        print(json.dumps({"seconds": beside_scipy(**options)}))
        return
    settings = {k: options.pop(k) for k in ("chunk_size", "num_workers", "devices", "mixed_precision") if k in options}
    if "grid" in options:
        settings["grid"] = tuple(options.pop("grid"))
    ctx = pypto.init(**settings)
    dtype = options.get("dtype", "float64")
    local = not ctx.engine.remote
    barrier = ctx.engine.world.comm.barrier if local else lambda: None
    before = pss()
    run, flops = hand_written_matmul(options["n"], dtype) if case == "by_hand" else CASES[case](**options)
    if options.get("n", 0) >= 1000:
        with Watch() as watch:
            run()
        peak = watch.peak
    else:
        run()
        peak = pss()
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
    report = [median, statistics.median(rates) if rates else 0.0, peak, before]
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
