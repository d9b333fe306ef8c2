"""The article's first program: a matrix product on four devices, started by plain python.

What differs from the article's text, and why:

* ``import numpy as np`` is there: the last line uses it.
* ``backend`` is left to ``"auto"`` off an Ascend machine.
* ``arange(4096, 4096)`` is an empty one-dimensional array in NumPy; the matrix is ``arange(4096 * 4096).reshape(4096, 4096)``.
* ``dtype=np.float32``: a product of int64 matrices uses no BLAS.
* ``compute()`` returns the result still distributed; ``np.asarray`` collects it.

    python examples/matmul_four_devices.py
"""

import time

import numpy as np

import pypto


def main():
    """Multiply, check a corner, and print the rate."""
    with pypto.init(devices=[0, 1, 2, 3]) as ctx:
        n = 4096
        # Scaled, so that sums of float32 stay within its seven digits.
        a = (pypto.arange(n * n, dtype=np.float32).reshape(n, n) / n**2).compute()
        b = (a.T + 1).compute()

        c = a @ b  # a node of the graph; nothing has run
        start = time.perf_counter()
        c.compute()
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        pypto.compute(a @ b)
        again = time.perf_counter() - start

        result = np.asarray(c)
        left, right = np.asarray(a[:4]), np.asarray(b[:, :4])
        error = np.abs(result[:4, :4] - left.astype(float) @ right).max() / np.abs(result[:4, :4]).max()
        print(f"{ctx.size} devices, grid {ctx.grid}: {n} x {n} float32 in {seconds:.3f} s, again {again:.3f} s")
        print(f"{2 * n**3 / again / 1e9:.0f} GFLOP/s, relative error of a corner {error:.1e}")


if __name__ == "__main__":
    main()
