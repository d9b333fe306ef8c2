# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernels on NumPy arrays by pointer: BLAS and LAPACK with a leading dimension, row exchanges, indexed copies.

SciPy's Python wrappers copy sub-blocks; these do not. Matrices are two-dimensional arrays with one unit stride; one with
rows contiguous is taken as the transpose of one with columns contiguous.
"""

import numpy as np

cimport numpy as cnp
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from scipy.linalg cimport cython_blas as blas
from scipy.linalg cimport cython_lapack as lapack

cnp.import_array()

ctypedef float complex c64
ctypedef double complex c128

cdef enum:
    F32 = 0
    F64 = 1
    C64 = 2
    C128 = 3
    MAXDIM = 16

DEF_TYPES = "float32, float64, complex64, complex128"


cdef struct Mat:
    void* data
    int rows
    int cols
    int ld
    bint c_order    # rows contiguous: the memory is the transpose of a column-major matrix
    int kind


cdef int kind_of(cnp.ndarray a) except -1:
    cdef int t = cnp.PyArray_TYPE(a)
    if t == cnp.NPY_FLOAT64:
        return F64
    if t == cnp.NPY_FLOAT32:
        return F32
    if t == cnp.NPY_COMPLEX128:
        return C128
    if t == cnp.NPY_COMPLEX64:
        return C64
    raise TypeError(f"dtype {a.dtype} has no BLAS kernel; allowed: {DEF_TYPES}")


cdef Mat mat(cnp.ndarray a, str name) except *:
    """Describe a matrix for BLAS; ValueError where its strides are not those of one leading dimension."""
    cdef Mat m
    if cnp.PyArray_NDIM(a) != 2:
        raise ValueError(f"{name} must be a matrix; it has {cnp.PyArray_NDIM(a)} axes")
    cdef int64_t rows = cnp.PyArray_DIM(a, 0), cols = cnp.PyArray_DIM(a, 1)
    cdef int64_t item = cnp.PyArray_ITEMSIZE(a)
    cdef int64_t s0 = cnp.PyArray_STRIDE(a, 0), s1 = cnp.PyArray_STRIDE(a, 1)
    cdef int64_t ld
    if rows > 0x7fffffff or cols > 0x7fffffff:
        raise ValueError(f"{name} of shape {rows} x {cols}: a dimension exceeds 2147483647")
    m.kind = kind_of(a)
    m.data = cnp.PyArray_DATA(a)
    m.rows, m.cols = <int>rows, <int>cols
    if (s0 == item or rows <= 1) and (cols <= 1 or (s1 % item == 0 and s1 // item >= (rows if rows > 0 else 1))):
        m.c_order = False
        ld = s1 // item if cols > 1 else rows
        if ld < rows:
            ld = rows
    elif (s1 == item or cols <= 1) and (rows <= 1 or (s0 % item == 0 and s0 // item >= (cols if cols > 0 else 1))):
        m.c_order = True
        ld = s0 // item if rows > 1 else cols
        if ld < cols:
            ld = cols
    elif rows == 0 or cols == 0:
        m.c_order = False
        ld = rows
    else:
        raise ValueError(f"{name} with strides ({s0}, {s1}) bytes has no unit stride with a leading dimension")
    if ld > 0x7fffffff:
        raise ValueError(f"{name}: leading dimension {ld} exceeds 2147483647")
    m.ld = <int>(ld if ld > 0 else 1)
    return m


cdef char letter(str s, str allowed, str name) except 0:
    if len(s) != 1 or s not in allowed:
        raise ValueError(f"{name}={s!r} is not allowed; choose from {', '.join(allowed)}")
    return <char>ord(s)


cdef char flipped(char t) noexcept nogil:
    """Transpose an op of BLAS: N <-> T. (C of a transposed matrix is a conjugate, which BLAS does not have.)"""
    return b"T" if t == b"N" else b"N"


def gemm(alpha, cnp.ndarray a, cnp.ndarray b, beta, cnp.ndarray c, str ta="N", str tb="N"):
    """c := alpha op(a) op(b) + beta c, with op in N, T, C; nothing is read from c where beta is zero."""
    cdef Mat ma = mat(a, "a"), mb = mat(b, "b"), mc = mat(c, "c")
    cdef char oa = letter(ta, "NTC", "ta"), ob = letter(tb, "NTC", "tb")
    cdef int m = ma.rows if oa == b"N" else ma.cols, k = ma.cols if oa == b"N" else ma.rows
    cdef int kb = mb.rows if ob == b"N" else mb.cols, n = mb.cols if ob == b"N" else mb.rows
    if ma.kind != mb.kind or ma.kind != mc.kind:
        raise TypeError(f"dtypes differ: {a.dtype}, {b.dtype}, {c.dtype}")
    if k != kb or mc.rows != m or mc.cols != n:
        raise ValueError(f"shapes do not match: op(a) {m} x {k}, op(b) {kb} x {n}, c {mc.rows} x {mc.cols}")
    if m == 0 or n == 0:
        return
    if k == 0:
        if beta == 0:
            c[...] = 0
        else:
            c *= beta
        return
    if ma.kind < C64:
        oa = b"T" if oa == b"C" else oa
        ob = b"T" if ob == b"C" else ob
    if ma.c_order:
        if oa == b"C":
            raise ValueError("a is C-ordered and ta='C': that is a conjugate without transposition, which BLAS lacks")
        oa = flipped(oa)
    if mb.c_order:
        if ob == b"C":
            raise ValueError("b is C-ordered and tb='C': that is a conjugate without transposition, which BLAS lacks")
        ob = flipped(ob)
    cdef Mat mt
    cdef char ot
    cdef int nt
    if mc.c_order:  # c^T = op(b)^T op(a)^T
        if oa == b"C" or ob == b"C":
            raise ValueError("c is C-ordered and an operand conjugated: compute its conjugate transpose instead")
        mt, ot, nt = ma, oa, m
        ma, oa, m = mb, flipped(ob), n
        mb, ob, n = mt, flipped(ot), nt
    cdef double complex za = alpha, zb = beta
    cdef float sa = za.real, sb = zb.real
    cdef double da = za.real, db = zb.real
    cdef c64 ca = <c64>za, cb = <c64>zb
    with nogil:
        if ma.kind == F64:
            blas.dgemm(&oa, &ob, &m, &n, &k, &da, <double*>ma.data, &ma.ld, <double*>mb.data, &mb.ld, &db, <double*>mc.data, &mc.ld)
        elif ma.kind == F32:
            blas.sgemm(&oa, &ob, &m, &n, &k, &sa, <float*>ma.data, &ma.ld, <float*>mb.data, &mb.ld, &sb, <float*>mc.data, &mc.ld)
        elif ma.kind == C128:
            blas.zgemm(&oa, &ob, &m, &n, &k, &za, <c128*>ma.data, &ma.ld, <c128*>mb.data, &mb.ld, &zb, <c128*>mc.data, &mc.ld)
        else:
            blas.cgemm(&oa, &ob, &m, &n, &k, &ca, <c64*>ma.data, &ma.ld, <c64*>mb.data, &mb.ld, &cb, <c64*>mc.data, &mc.ld)


def trsm(str side, str uplo, str trans, str diag, alpha, cnp.ndarray a, cnp.ndarray b):
    """b := alpha op(a)^-1 b (side L) or alpha b op(a)^-1 (side R), in place; a is triangular."""
    cdef Mat ma = mat(a, "a"), mb = mat(b, "b")
    cdef char s = letter(side, "LR", "side"), u = letter(uplo, "LU", "uplo")
    cdef char t = letter(trans, "NTC", "trans"), d = letter(diag, "NU", "diag")
    cdef int m = mb.rows, n = mb.cols, order = mb.rows if side == "L" else mb.cols
    if ma.kind != mb.kind:
        raise TypeError(f"dtypes differ: {a.dtype}, {b.dtype}")
    if ma.rows != ma.cols or ma.rows != order:
        raise ValueError(f"a is {ma.rows} x {ma.cols}; side {side} of b ({m} x {n}) needs it square of order {order}")
    if m == 0 or n == 0:
        return
    cdef bint conj_only = False
    if ma.kind < C64 and t == b"C":
        t = b"T"
    if mb.c_order:  # transpose the equation: op(a)^T acts from the other side
        s = b"R" if s == b"L" else b"L"
        m, n = n, m
        if t == b"C":
            conj_only = True  # (a^H)^T = conj(a)
            t = b"N"
        else:
            t = flipped(t)
    if ma.c_order:
        u = b"U" if u == b"L" else b"L"
        if conj_only:  # conj(a) = (a^T)^H
            conj_only = False
            t = b"C"
        elif t == b"C":  # a^H = conj(memory)
            conj_only = True
            t = b"N"
        else:
            t = flipped(t)
    if conj_only:
        np.conjugate(b, out=b)
    cdef double complex za = alpha
    if conj_only:
        za = za.conjugate()
    cdef float sa = za.real
    cdef double da = za.real
    cdef c64 ca = <c64>za
    with nogil:
        if ma.kind == F64:
            blas.dtrsm(&s, &u, &t, &d, &m, &n, &da, <double*>ma.data, &ma.ld, <double*>mb.data, &mb.ld)
        elif ma.kind == F32:
            blas.strsm(&s, &u, &t, &d, &m, &n, &sa, <float*>ma.data, &ma.ld, <float*>mb.data, &mb.ld)
        elif ma.kind == C128:
            blas.ztrsm(&s, &u, &t, &d, &m, &n, &za, <c128*>ma.data, &ma.ld, <c128*>mb.data, &mb.ld)
        else:
            blas.ctrsm(&s, &u, &t, &d, &m, &n, &ca, <c64*>ma.data, &ma.ld, <c64*>mb.data, &mb.ld)
    if conj_only:
        np.conjugate(b, out=b)


def herk(str uplo, str trans, alpha, cnp.ndarray a, beta, cnp.ndarray c):
    """c := alpha a a^H + beta c (trans N) or alpha a^H a + beta c (trans C), one triangle of F-ordered c; a F-ordered."""
    cdef Mat ma = mat(a, "a"), mc = mat(c, "c")
    cdef char u = letter(uplo, "LU", "uplo"), t = letter(trans, "NC", "trans")
    cdef int n = ma.rows if trans == "N" else ma.cols, k = ma.cols if trans == "N" else ma.rows
    if ma.kind != mc.kind:
        raise TypeError(f"dtypes differ: {a.dtype}, {c.dtype}")
    if mc.rows != n or mc.cols != n:
        raise ValueError(f"c is {mc.rows} x {mc.cols}; a product of order {n} was asked for")
    if n == 0 or k == 0:
        return
    if ma.c_order or mc.c_order:
        raise ValueError("herk takes F-ordered matrices")
    cdef double da = alpha, db = beta
    cdef float sa = alpha, sb = beta
    if ma.kind < C64 and t == b"C":
        t = b"T"
    with nogil:
        if ma.kind == F64:
            blas.dsyrk(&u, &t, &n, &k, &da, <double*>ma.data, &ma.ld, &db, <double*>mc.data, &mc.ld)
        elif ma.kind == F32:
            blas.ssyrk(&u, &t, &n, &k, &sa, <float*>ma.data, &ma.ld, &sb, <float*>mc.data, &mc.ld)
        elif ma.kind == C128:
            blas.zherk(&u, &t, &n, &k, &da, <c128*>ma.data, &ma.ld, &db, <c128*>mc.data, &mc.ld)
        else:
            blas.cherk(&u, &t, &n, &k, &sa, <c64*>ma.data, &ma.ld, &sb, <c64*>mc.data, &mc.ld)


def potrf(str uplo, cnp.ndarray a):
    """a := its Cholesky factor in the named triangle; return LAPACK's info."""
    cdef Mat ma = mat(a, "a")
    cdef char u = letter(uplo, "LU", "uplo")
    cdef int info = 0
    if ma.rows != ma.cols:
        raise ValueError(f"a is {ma.rows} x {ma.cols}; a square matrix is needed")
    if ma.rows == 0:
        return 0
    if ma.c_order:
        raise ValueError("potrf takes an F-ordered matrix")
    with nogil:
        if ma.kind == F64:
            lapack.dpotrf(&u, &ma.rows, <double*>ma.data, &ma.ld, &info)
        elif ma.kind == F32:
            lapack.spotrf(&u, &ma.rows, <float*>ma.data, &ma.ld, &info)
        elif ma.kind == C128:
            lapack.zpotrf(&u, &ma.rows, <c128*>ma.data, &ma.ld, &info)
        else:
            lapack.cpotrf(&u, &ma.rows, <c64*>ma.data, &ma.ld, &info)
    return info


def getrf(cnp.ndarray a, cnp.ndarray ipiv):
    """a := L and U of its rows interchanged by ipiv (int32, counted from 1); return LAPACK's info."""
    cdef Mat ma = mat(a, "a")
    cdef int info = 0
    if cnp.PyArray_TYPE(ipiv) != cnp.NPY_INT32 or not cnp.PyArray_IS_C_CONTIGUOUS(ipiv):
        raise TypeError("ipiv must be a contiguous int32 array")
    if cnp.PyArray_SIZE(ipiv) < min(ma.rows, ma.cols):
        raise ValueError(f"ipiv has {cnp.PyArray_SIZE(ipiv)} places for {min(ma.rows, ma.cols)} pivots")
    if ma.rows == 0 or ma.cols == 0:
        return 0
    if ma.c_order:
        raise ValueError("getrf takes an F-ordered matrix")
    cdef int* p = <int*>cnp.PyArray_DATA(ipiv)
    with nogil:
        if ma.kind == F64:
            lapack.dgetrf(&ma.rows, &ma.cols, <double*>ma.data, &ma.ld, p, &info)
        elif ma.kind == F32:
            lapack.sgetrf(&ma.rows, &ma.cols, <float*>ma.data, &ma.ld, p, &info)
        elif ma.kind == C128:
            lapack.zgetrf(&ma.rows, &ma.cols, <c128*>ma.data, &ma.ld, p, &info)
        else:
            lapack.cgetrf(&ma.rows, &ma.cols, <c64*>ma.data, &ma.ld, p, &info)
    return info


def geqrt(cnp.ndarray a, cnp.ndarray tau):
    """a := R and the Householder vectors of its QR factorisation, tau their factors: Q = H_1 H_2 ..., H = I - tau v v^H."""
    cdef Mat ma = mat(a, "a")
    cdef int k = min(ma.rows, ma.cols), nb = min(32, k), info = 0
    if kind_of(tau) != ma.kind or not cnp.PyArray_IS_C_CONTIGUOUS(tau) or cnp.PyArray_SIZE(tau) < k:
        raise TypeError(f"tau must be a contiguous array of {k} numbers of dtype {a.dtype}")
    if k == 0:
        return
    if ma.c_order:
        raise ValueError("geqrt takes an F-ordered matrix")
    cdef cnp.ndarray t = np.empty((nb, k), a.dtype, order="F")
    cdef cnp.ndarray work = np.empty(nb * ma.cols, a.dtype)
    cdef void* tp = cnp.PyArray_DATA(t)
    cdef void* wp = cnp.PyArray_DATA(work)
    with nogil:
        if ma.kind == F64:
            lapack.dgeqrt(&ma.rows, &ma.cols, &nb, <double*>ma.data, &ma.ld, <double*>tp, &nb, <double*>wp, &info)
        elif ma.kind == F32:
            lapack.sgeqrt(&ma.rows, &ma.cols, &nb, <float*>ma.data, &ma.ld, <float*>tp, &nb, <float*>wp, &info)
        elif ma.kind == C128:
            lapack.zgeqrt(&ma.rows, &ma.cols, &nb, <c128*>ma.data, &ma.ld, <c128*>tp, &nb, <c128*>wp, &info)
        else:
            lapack.cgeqrt(&ma.rows, &ma.cols, &nb, <c64*>ma.data, &ma.ld, <c64*>tp, &nb, <c64*>wp, &info)
    i = np.arange(k)
    tau[:k] = t[i % nb, i]  # the blocks of T stand side by side


cdef int64_t* index_pointer(cnp.ndarray index, int64_t extent, str name) except? NULL:
    """Return the data of an int64 index array whose values lie in 0 ... extent-1."""
    if canonical(cnp.PyArray_TYPE(index)) != cnp.NPY_INT64 or not cnp.PyArray_IS_C_CONTIGUOUS(index) or cnp.PyArray_NDIM(index) != 1:
        raise TypeError(f"{name} must be a contiguous one-dimensional int64 array")
    cdef int64_t* p = <int64_t*>cnp.PyArray_DATA(index)
    cdef int64_t i, n = cnp.PyArray_SIZE(index)
    for i in range(n):
        if p[i] < 0 or p[i] >= extent:
            raise IndexError(f"{name} holds {p[i]}; the axis has {extent} places")
    return p


def laswp(cnp.ndarray a, cnp.ndarray source, cnp.ndarray target):
    """a[target, :] = a[source, :] at once (each row is read before it is written), blocked by columns."""
    if cnp.PyArray_NDIM(a) != 2:
        raise ValueError("laswp takes a matrix")
    cdef int64_t n = cnp.PyArray_SIZE(source), cols = cnp.PyArray_DIM(a, 1), rows = cnp.PyArray_DIM(a, 0)
    cdef int64_t* s = index_pointer(source, rows, "source")
    cdef int64_t* t = index_pointer(target, rows, "target")
    cdef int64_t item = cnp.PyArray_ITEMSIZE(a), s0 = cnp.PyArray_STRIDE(a, 0), s1 = cnp.PyArray_STRIDE(a, 1)
    cdef char* base = <char*>cnp.PyArray_DATA(a)
    cdef char* column
    cdef char* buffer
    cdef int64_t i, j
    if cnp.PyArray_SIZE(target) != n:
        raise ValueError(f"source has {n} rows, target {cnp.PyArray_SIZE(target)}")
    if n == 0 or cols == 0:
        return
    buffer = <char*>malloc(n * item)
    if buffer == NULL:
        raise MemoryError(f"no memory for {n * item} bytes")
    with nogil:
        for j in range(cols):
            column = base + j * s1
            if item == 8:
                for i in range(n):
                    (<double*>buffer)[i] = (<double*>(column + s[i] * s0))[0]
                for i in range(n):
                    (<double*>(column + t[i] * s0))[0] = (<double*>buffer)[i]
            else:
                for i in range(n):
                    memcpy(buffer + i * item, column + s[i] * s0, item)
                for i in range(n):
                    memcpy(column + t[i] * s0, buffer + i * item, item)
        free(buffer)


# indexed copies


ctypedef fused number:
    float
    double
    c64
    c128
    cnp.int8_t
    cnp.int16_t
    cnp.int32_t
    cnp.int64_t
    cnp.uint8_t
    cnp.uint16_t
    cnp.uint32_t
    cnp.uint64_t


cdef void add_line(number* unused, char* d, int64_t* di, int64_t ds, char* s, int64_t* si, int64_t ss, int64_t n) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        (<number*>(d + di[i] * ds))[0] += (<number*>(s + si[i] * ss))[0]


cdef void copy_line(char* d, int64_t* di, int64_t ds, char* s, int64_t* si, int64_t ss, int64_t n, int64_t item) noexcept nogil:
    cdef int64_t i
    if item == 8:
        for i in range(n):
            (<int64_t*>(d + di[i] * ds))[0] = (<int64_t*>(s + si[i] * ss))[0]
    elif item == 4:
        for i in range(n):
            (<cnp.int32_t*>(d + di[i] * ds))[0] = (<cnp.int32_t*>(s + si[i] * ss))[0]
    elif item == 16:
        for i in range(n):
            (<c128*>(d + di[i] * ds))[0] = (<c128*>(s + si[i] * ss))[0]
    else:
        for i in range(n):
            memcpy(d + di[i] * ds, s + si[i] * ss, item)


cdef void copy_runs(char* d, int64_t* di, char* s, int64_t* si, int64_t* runs, int64_t nruns, int64_t item) noexcept nogil:
    """Copy runs of consecutive elements; runs[r] is the position at which run r begins, runs[nruns] the end."""
    cdef int64_t r, i
    for r in range(nruns):
        i = runs[r]
        memcpy(d + di[i] * item, s + si[i] * item, (runs[r + 1] - i) * item)


cdef struct Job:
    int ndim
    int64_t n[MAXDIM]
    int64_t ds[MAXDIM]
    int64_t ss[MAXDIM]
    int64_t* di[MAXDIM]
    int64_t* si[MAXDIM]


cdef int unit_axis(int64_t* strides, int64_t* n, int ndim) noexcept nogil:
    """Return the axis longer than one with the least stride."""
    cdef int a, best = ndim - 1
    cdef int64_t least = 0, s
    for a in range(ndim):
        s = strides[a] if strides[a] >= 0 else -strides[a]
        if n[a] > 1 and s > 0 and (least == 0 or s < least):
            least, best = s, a
    return best


cdef void walk(Job* job, char* d, char* s, int inner, int second, int64_t item, int64_t* runs, int64_t nruns,
               int adding) noexcept nogil:
    """Visit every combination of the axes other than `inner` and `second`; copy the plane of these two each time."""
    cdef int64_t at[MAXDIM]
    cdef int a, moved
    cdef char* dp
    cdef char* sp
    for a in range(job.ndim):
        at[a] = 0
    while True:
        dp, sp = d, s
        for a in range(job.ndim):
            if a != inner and a != second:
                dp += job.di[a][at[a]] * job.ds[a]
                sp += job.si[a][at[a]] * job.ss[a]
        plane(job, dp, sp, inner, second, item, runs, nruns, adding)
        moved = 0
        for a in range(job.ndim - 1, -1, -1):
            if a == inner or a == second:
                continue
            at[a] += 1
            if at[a] < job.n[a]:
                moved = 1
                break
            at[a] = 0
        if not moved:
            return


cdef void plane(Job* job, char* d, char* s, int inner, int second, int64_t item, int64_t* runs, int64_t nruns,
                int adding) noexcept nogil:
    cdef int64_t j, j0, i0, width, height, lines = job.n[second] if second >= 0 else 1
    cdef char* dp
    cdef char* sp
    if adding or runs != NULL:
        for j in range(lines):
            dp = d + (job.di[second][j] * job.ds[second] if second >= 0 else 0)
            sp = s + (job.si[second][j] * job.ss[second] if second >= 0 else 0)
            if runs != NULL:
                copy_runs(dp, job.di[inner], sp, job.si[inner], runs, nruns, item)
            else:
                add_kind(adding, dp, job.di[inner], job.ds[inner], sp, job.si[inner], job.ss[inner], job.n[inner])
        return
    # The unit strides differ: squares that stay in cache.
    j0 = 0
    while j0 < lines:
        height = min(64, lines - j0)
        i0 = 0
        while i0 < job.n[inner]:
            width = min(64, job.n[inner] - i0)
            for j in range(j0, j0 + height):
                dp = d + (job.di[second][j] * job.ds[second] if second >= 0 else 0)
                sp = s + (job.si[second][j] * job.ss[second] if second >= 0 else 0)
                copy_line(dp, job.di[inner] + i0, job.ds[inner], sp, job.si[inner] + i0, job.ss[inner], width, item)
            i0 += 64
        j0 += 64


cdef void add_kind(int t, char* d, int64_t* di, int64_t ds, char* s, int64_t* si, int64_t ss, int64_t n) noexcept nogil:
    if t == cnp.NPY_FLOAT64:
        add_line[double](NULL, d, di, ds, s, si, ss, n)
    elif t == cnp.NPY_FLOAT32:
        add_line[float](NULL, d, di, ds, s, si, ss, n)
    elif t == cnp.NPY_COMPLEX128:
        add_line[c128](NULL, d, di, ds, s, si, ss, n)
    elif t == cnp.NPY_COMPLEX64:
        add_line[c64](NULL, d, di, ds, s, si, ss, n)
    elif t == cnp.NPY_INT64:
        add_line[cnp.int64_t](NULL, d, di, ds, s, si, ss, n)
    elif t == cnp.NPY_INT32:
        add_line[cnp.int32_t](NULL, d, di, ds, s, si, ss, n)
    elif t == cnp.NPY_INT16:
        add_line[cnp.int16_t](NULL, d, di, ds, s, si, ss, n)
    elif t == cnp.NPY_INT8:
        add_line[cnp.int8_t](NULL, d, di, ds, s, si, ss, n)
    elif t == cnp.NPY_UINT64:
        add_line[cnp.uint64_t](NULL, d, di, ds, s, si, ss, n)
    elif t == cnp.NPY_UINT32:
        add_line[cnp.uint32_t](NULL, d, di, ds, s, si, ss, n)
    elif t == cnp.NPY_UINT16:
        add_line[cnp.uint16_t](NULL, d, di, ds, s, si, ss, n)
    elif t == cnp.NPY_UINT8:
        add_line[cnp.uint8_t](NULL, d, di, ds, s, si, ss, n)


cdef int canonical(int t) noexcept:
    """Return the type number by which `long long` goes where `long` has its size."""
    if t == cnp.NPY_LONGLONG:
        return cnp.NPY_INT64
    if t == cnp.NPY_ULONGLONG:
        return cnp.NPY_UINT64
    return t


cdef bint can_add(int t) noexcept:
    return t in (cnp.NPY_FLOAT64, cnp.NPY_FLOAT32, cnp.NPY_COMPLEX128, cnp.NPY_COMPLEX64, cnp.NPY_INT64, cnp.NPY_INT32,
                 cnp.NPY_INT16, cnp.NPY_INT8, cnp.NPY_UINT64, cnp.NPY_UINT32, cnp.NPY_UINT16, cnp.NPY_UINT8)


def copy_indexed(cnp.ndarray dst, dst_index, cnp.ndarray src, src_index, bint add=False):
    """dst[np.ix_(*dst_index)] = src[np.ix_(*src_index)], or += ; any strides; the arrays must not overlap."""
    cdef Job job
    cdef int a, ndim = cnp.PyArray_NDIM(dst), inner, second, other, kind = canonical(cnp.PyArray_TYPE(dst))
    cdef int64_t item = cnp.PyArray_ITEMSIZE(dst), i, nruns = 0
    cdef int64_t* runs = NULL
    cdef cnp.ndarray x, y
    if ndim < 1 or ndim > MAXDIM or cnp.PyArray_NDIM(src) != ndim or len(dst_index) != ndim or len(src_index) != ndim:
        raise ValueError(f"copy_indexed: {ndim} and {cnp.PyArray_NDIM(src)} axes with {len(dst_index)} and {len(src_index)} indices")
    if canonical(cnp.PyArray_TYPE(src)) != kind:
        raise TypeError(f"copy_indexed: dtypes differ, {dst.dtype} and {src.dtype}")
    if add and not can_add(kind):
        raise TypeError(f"copy_indexed cannot add {dst.dtype}")
    job.ndim = ndim
    for a in range(ndim):
        x, y = dst_index[a], src_index[a]
        job.di[a] = index_pointer(x, cnp.PyArray_DIM(dst, a), "dst_index")
        job.si[a] = index_pointer(y, cnp.PyArray_DIM(src, a), "src_index")
        job.n[a] = cnp.PyArray_SIZE(x)
        if cnp.PyArray_SIZE(y) != job.n[a]:
            raise ValueError(f"copy_indexed: axis {a} has {job.n[a]} target and {cnp.PyArray_SIZE(y)} source indices")
        job.ds[a], job.ss[a] = cnp.PyArray_STRIDE(dst, a), cnp.PyArray_STRIDE(src, a)
    for a in range(ndim):
        if job.n[a] == 0:
            return
    inner = unit_axis(job.ds, job.n, ndim)
    other = unit_axis(job.ss, job.n, ndim)
    second = other if other != inner else -1
    if second < 0:
        for a in range(ndim):
            if a != inner and (second < 0 or job.n[a] > job.n[second]):
                second = a
    if not add and inner == other and job.ds[inner] == item and job.ss[inner] == item:
        runs = <int64_t*>malloc((job.n[inner] + 1) * sizeof(int64_t))
        if runs == NULL:
            raise MemoryError("no memory for the runs of a copy")
        for i in range(job.n[inner]):
            if i == 0 or job.di[inner][i] != job.di[inner][i - 1] + 1 or job.si[inner][i] != job.si[inner][i - 1] + 1:
                runs[nruns] = i
                nruns += 1
        runs[nruns] = job.n[inner]
        if nruns * 4 > job.n[inner] and job.n[inner] > 4:  # runs too short for memcpy to pay
            free(runs)
            runs = NULL
    cdef char* dp = <char*>cnp.PyArray_DATA(dst)
    cdef char* sp = <char*>cnp.PyArray_DATA(src)
    with nogil:
        walk(&job, dp, sp, inner, second, item, runs, nruns, kind if add else 0)
    free(runs)
