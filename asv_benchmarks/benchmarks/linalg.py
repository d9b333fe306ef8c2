"""Rates of products, factorisations and solves on two ranks of one thread."""

from .common import alone, ranks


class Rate:
    """GFLOP/s of the slowest of two ranks."""

    params = (["matmul", "solve", "lu", "cholesky", "qr_r", "qr_economic"], [2000, 4096], ["float64", "float32"])
    param_names = ("case", "n", "dtype")
    timeout = 600
    unit = "GFLOP/s"

    def track_rate(self, case, n, dtype):
        """Median rate."""
        return ranks(2, case, n=n, dtype=dtype)["gflops"]


class LeastSquares:
    """Seconds of tall problems on two ranks, and of QR with column pivoting."""

    params = (["tall_qr", "lstsq", "qr_pivoted"],)
    param_names = ("case",)
    timeout = 600
    unit = "s"

    def track_seconds(self, case):
        """200,000 x 64, 20,000 x 500, 2000 x 2000."""
        return ranks(2, case)["seconds"]


class MixedPrecision:
    """Time of a solve in single precision with refinement over that in double precision, on two ranks."""

    params = ([2000, 8000],)
    param_names = ("n",)
    timeout = 1200
    unit = "fraction"

    def track_ratio(self, n):
        """A random matrix."""
        return (
            ranks(2, "solve", n=n, mixed_precision=True)["seconds"] / ranks(2, "solve", n=n, mixed_precision=False)["seconds"]
        )


class Efficiency:
    """The rate in units of two one-thread GEMMs measured in the same run."""

    params = (["matmul", "solve"], [1, 2, 4])
    param_names = ("case", "ranks")
    timeout = 600
    unit = "fraction"

    def track_efficiency(self, case, size):
        """4 ranks share two cores, so the yardstick is the rate of one rank alone."""
        alone = ranks(1, "matmul", n=2048, repeats=3, num_workers=1)["gemm"]
        return ranks(size, case, n=4096)["gflops"] / (min(size, 2) * alone)


class Memory:
    """Peak resident memory of a rank over the sum of operands and result."""

    params = (["matmul", "solve"],)
    param_names = ("case",)
    timeout = 600
    unit = "fraction"

    def track_peak(self, case):
        """n = 8192 on two ranks."""
        report = ranks(2, case, n=8192, repeats=1)
        arrays = {"matmul": 3, "solve": 2}[case] * 8192**2 * 8 / 2 / 2**20
        return (report["peak_mib"] - report["base_mib"]) / arrays


class Choice:
    """The automatic tile size and number of threads over the best of a sweep; 1 is best."""

    params = (["matmul", "solve"],)
    param_names = ("case",)
    timeout = 1800
    unit = "fraction"

    def track_chunk_size(self, case):
        """Tile sizes on two ranks."""
        rate = {
            nb: ranks(2, case, n=4096, repeats=3, **({"chunk_size": nb} if nb else {}))["gflops"]
            for nb in (0, 32, 64, 128, 192, 256, 512, 1024, 4096)
        }
        return rate[0] / max(rate.values())

    def track_num_workers(self, case):
        """Threads of one device."""
        rate = {t: ranks(1, case, n=4096, repeats=3, **({"num_workers": t} if t else {}))["gflops"] for t in (0, 1, 2, 4)}
        return rate[0] / max(rate.values())


class Alone:
    """Time of one device in units of SciPy's, with the same threads, alternating in one process."""

    unit = "fraction"
    timeout = 600

    def track_solve(self):
        """n = 2000."""
        return alone("beside_scipy", n=2000)["seconds"]
