"""One table of pypto beside NumPy and SciPy on the same cores, ScaLAPACK where it is installed, and a product sharded by hand.

    python asv_benchmarks/peers/table.py [n [case ...]]

Rounds alternate between the programs; the figures are medians. ScaLAPACK runs through ``scalapack.py`` with its best grid and
tile size, under the mpiexec named in SCALAPACK_MPIEXEC (default /usr/bin/mpiexec.mpich); without that it is left out.
"""

import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from benchmarks.common import clean_environment, ranks

from pypto.comm import launch

SCIPY = """
import sys, time, statistics, numpy as np, scipy.linalg as sl
case, n, dtype = sys.argv[1], int(sys.argv[2]), sys.argv[3]
a = np.random.default_rng(0).standard_normal((n, n)).astype(dtype); b = np.ones(n, dtype)
s = np.asfortranarray(a @ a.T + n * np.eye(n, dtype=dtype)) if case == "cholesky" else None
m = {"tall_qr": 200_000, "lstsq": 20_000}.get(case, n)
tall = np.random.default_rng(0).standard_normal((m, n)).astype(dtype) if m != n else None
run = {"qr_r": lambda: sl.qr(a, mode="r"), "qr_economic": lambda: sl.qr(a, mode="economic"),
       "qr_pivoted": lambda: sl.qr(a, mode="r", pivoting=True), "tall_qr": lambda: sl.qr(tall, mode="economic"),
       "lstsq": lambda: sl.lstsq(tall, np.ones(m, dtype)), "matmul": lambda: a @ a,
       "solve": lambda: sl.solve(a, b), "lu": lambda: sl.lu_factor(a),
       "cholesky": lambda: sl.cholesky(s, lower=True)}[case]
run()
t = []
for _ in range(3):
    start = time.perf_counter(); run(); t.append(time.perf_counter() - start)
print(statistics.median(t))
"""
FLOPS = {"matmul": 2, "solve": 2 / 3, "lu": 2 / 3, "cholesky": 1 / 3, "qr_r": 4 / 3, "qr_economic": 8 / 3}
#: Cases of other shapes: their n, and their flops.
TALL = {"qr_pivoted": (2000, 4 / 3 * 2000**3), "tall_qr": (64, 4 * 200_000 * 64**2), "lstsq": (500, 2 * 20_000 * 500**2)}
SCALAPACK = {"matmul": "gemm", "solve": "getrs", "lu": "getrf", "cholesky": "potrf", "qr_r": "geqrf"}


def scipy_seconds(case, n, dtype):
    """SciPy with two threads in a process of its own."""
    env = clean_environment(launch.rank_environment(1, 2))
    return float(
        subprocess.run(
            [sys.executable, "-c", SCIPY, case, str(n), dtype], env=env, capture_output=True, text=True, check=True
        ).stdout
    )


def scalapack_seconds(case, n):
    """ScaLAPACK by its best grid and tile size on two ranks of one thread, None where it is not installed."""
    mpiexec = os.environ.get("SCALAPACK_MPIEXEC", "/usr/bin/mpiexec.mpich")
    if not os.path.exists(mpiexec) or case not in SCALAPACK:
        return None
    program = [sys.executable, str(pathlib.Path(__file__).with_name("scalapack.py"))]
    env = clean_environment(launch.rank_environment(2, 1))
    times = []
    for p, q in ((1, 2), (2, 1)):
        for nb in (64, 128, 256):
            sizes = map(str, (p, q, nb, n, 3))
            done = subprocess.run(
                [mpiexec, "-n", "2", *program, *sizes, SCALAPACK[case]], env=env, capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                times.append(float(done.stdout.split()[-1]))
    return min(times, default=None)


def line(case, n, flops, dtype, rounds, **options):
    """Print one row: medians over rounds that alternate between the programs."""
    mine, theirs = [], []
    for _ in range(rounds):
        mine.append(ranks(2, case, n=n, dtype=dtype, repeats=3, **options))
        theirs.append(scipy_seconds(case, n, dtype))
    rate = statistics.median(m["gflops"] for m in mine)
    share = statistics.median(m["gflops"] / (2 * m["gemm"]) for m in mine)
    peer = flops / 1e9 / statistics.median(theirs)
    ratio = statistics.median(t / m["seconds"] for m, t in zip(mine, theirs, strict=True))
    other = scalapack_seconds(case, n) if dtype == "float64" else None
    third = f"{flops / 1e9 / other:.1f}" if other else "-"
    print(f"{case + ' ' + dtype:<20} {rate:10.1f} {share:10.2f} {peer:10.1f} {ratio:6.2f} {third:>10}", flush=True)


def main():
    """Print the table."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    chosen = sys.argv[2:] or [*FLOPS, *TALL]
    rounds = int(os.environ.get("ROUNDS", "3"))
    print(f"{'n = ' + str(n):<20} {'pypto GF/s':>10} {'of 2 GEMM':>10} {'SciPy GF/s':>10} {'ratio':>6} {'ScaLAPACK':>10}")
    for case in chosen:
        for dtype in ("float64", "float32") if case in FLOPS else ("float64",):
            size, flops = TALL[case] if case in TALL else (n, FLOPS[case] * n**3)
            line(case, size, flops, dtype, rounds, **({"mixed_precision": False} if case == "solve" else {}))
    if sys.argv[2:]:
        return
    hand = ranks(2, "by_hand", n=n, repeats=3)
    print(f"product sharded by hand with mpi4py, float64: {hand['gflops']:.1f} GF/s in 9 lines; pypto: a @ b")


if __name__ == "__main__":
    main()
