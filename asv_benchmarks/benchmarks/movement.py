"""Redistribution, and the overhead of small arrays and of starting."""

import subprocess
import sys
import time

from .common import alone, ranks


class Redistribute:
    """GB/s of a whole matrix from one layout to another, on two ranks."""

    params = (["row", "col"], ["block_cyclic", "col", "replicated"])
    param_names = ("source", "target")
    timeout = 300
    unit = "GB/s"

    def track_bandwidth(self, source, target):
        """Bytes of the matrix over the time of the slowest rank."""
        return ranks(2, "redistribute", source=source, target=target)["gflops"]


class Small:
    """Microseconds of ``(a + b).compute()`` on 10 x 10."""

    unit = "us"

    def track_one_device(self):
        """One process."""
        return 1e6 * alone("small", threads=1)["seconds"]

    def track_spmd(self):
        """Two ranks."""
        return 1e6 * ranks(2, "small")["seconds"]

    def track_driver(self):
        """A driver of two workers."""
        return 1e6 * alone("small", threads=1, devices=2)["seconds"]


class Start:
    """Seconds."""

    unit = "s"

    def track_driver_of_four(self):
        """From init to the first result."""
        code = (
            "import pypto, time; t = time.perf_counter(); pypto.init(devices=4); (pypto.ones(4) + 1).compute();"
            "print(time.perf_counter() - t)"
        )
        done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
        return float(done.stdout)

    def track_import(self):
        """`import pypto` beyond NumPy and SciPy."""
        code = "import numpy, scipy.linalg, time; t = time.perf_counter(); import pypto; print(time.perf_counter() - t)"
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
        assert time.perf_counter() > start
        return float(done.stdout)
