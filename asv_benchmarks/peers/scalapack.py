"""ScaLAPACK's rate for one operation, called through ctypes; run under the mpiexec that belongs to the library.

    mpiexec -n P*Q python scalapack.py P Q nb n repeats {gemm,getrf,getrs,potrf}

On Debian: packages libscalapack-mpich-dev, libopenblas-dev and mpich; the library is named in SCALAPACK (default
libscalapack-mpich.so). One BLAS thread per rank. The first process prints the median seconds.
"""

import ctypes
import os
import statistics
import sys
import time

import numpy as np

lib = ctypes.CDLL(os.environ.get("SCALAPACK", "libscalapack-mpich.so"), ctypes.RTLD_GLOBAL)


def ref(value):
    """Return a Fortran argument: an integer, a double, a character or an array by reference."""
    if isinstance(value, np.ndarray):
        return value.ctypes.data_as(ctypes.c_void_p)
    if isinstance(value, str):
        return ctypes.c_char_p(value.encode())
    return ctypes.byref(ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int(value))


def main():
    """Time one operation."""
    p, q, nb, n, repeats = map(int, sys.argv[1:6])
    op = sys.argv[6]
    me, count, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    lib.Cblacs_pinfo(ctypes.byref(me), ctypes.byref(count))
    lib.Cblacs_get(-1, 0, ctypes.byref(context))
    lib.Cblacs_gridinit(ctypes.byref(context), b"Row", p, q)
    row, col = divmod(me.value, q)
    lib.numroc_.restype = ctypes.c_int
    rows, cols = (lib.numroc_(ref(n), ref(nb), ref(c), ref(0), ref(e)) for c, e in ((row, p), (col, q)))
    lead = max(rows, 1)
    desc, info = np.zeros(9, np.int32), ctypes.c_int()
    lib.descinit_(ref(desc), *map(ref, (n, n, nb, nb, 0, 0, context.value, lead)), ctypes.byref(info))

    def matrix(diagonal=0.0):
        gi = (np.arange(rows) // nb * p + row) * nb + np.arange(rows) % nb
        gj = (np.arange(cols) // nb * q + col) * nb + np.arange(cols) % nb
        if diagonal:  # symmetric positive definite
            return np.asfortranarray(1.0 / (1 + abs(gi[:, None] - gj)) + diagonal * (gi[:, None] == gj))
        return np.asfortranarray(np.random.default_rng(me.value).standard_normal((rows, cols)))

    def call(name, a, b, c, pivots):
        if name == "gemm":
            lib.pdgemm_(ref("N"), ref("N"), ref(n), ref(n), ref(n), ref(1.0), ref(a), ref(1), ref(1), ref(desc),
                        ref(b), ref(1), ref(1), ref(desc), ref(0.0), ref(c), ref(1), ref(1), ref(desc))  # fmt: skip
        elif name == "potrf":
            lib.pdpotrf_(ref("L"), ref(n), ref(a), ref(1), ref(1), ref(desc), ctypes.byref(info))
        else:
            lib.pdgetrf_(ref(n), ref(n), ref(a), ref(1), ref(1), ref(desc), ref(pivots), ctypes.byref(info))
            if name == "getrs":
                lib.pdgetrs_(ref("N"), ref(n), ref(1), ref(a), ref(1), ref(1), ref(desc), ref(pivots),
                             ref(b), ref(1), ref(1), ref(desc), ctypes.byref(info))  # fmt: skip

    original = matrix(float(n) if op == "potrf" else 0.0)
    b, c = matrix(), np.zeros((lead, max(cols, 1)), order="F")
    times = []
    for _ in range(repeats + 1):
        a = original.copy(order="F")
        pivots = np.zeros(rows + nb + n, np.int32)
        lib.Cblacs_barrier(context, b"All")
        start = time.perf_counter()
        call(op, a, b, c, pivots)
        lib.Cblacs_barrier(context, b"All")
        times.append(time.perf_counter() - start)
    if me.value == 0:
        print(statistics.median(times[1:]), flush=True)
    lib.Cblacs_exit(0)


if __name__ == "__main__":
    main()
