"""Rates of products, factorisations and solves on two ranks of one thread."""

from .common import ranks


class Rate:
    """GFLOP/s of the slowest of two ranks."""

    params = (["matmul", "solve", "lu", "cholesky"], [2000, 4096], ["float64", "float32"])
    param_names = ("case", "n", "dtype")
    timeout = 600
    unit = "GFLOP/s"

    def track_rate(self, case, n, dtype):
        """Median rate."""
        return ranks(2, case, n=n, dtype=dtype)["gflops"]


class Efficiency:
    """The rate in units of two one-thread GEMMs measured in the same run."""

    params = (["matmul", "solve"], [1, 2, 4])
    param_names = ("case", "ranks")
    timeout = 600
    unit = "fraction"

    def track_efficiency(self, case, size):
        """4 ranks share two cores, so the yardstick is the rate of one rank alone."""
        alone = ranks(1, "matmul", n=2048, repeats=3)["gemm"]
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
