"""Compiled kernels against their NumPy twins."""

import itertools

import numpy as np
import pytest

from pypto.device import _kernels as k

DTYPES = "fdFD"


def random(rng, shape, char, order="F", pad=0):
    """Return a matrix in C or Fortran order, with a leading dimension that is longer by `pad`."""
    m, n = shape
    big = rng.standard_normal((m + pad, n + pad))
    if char in "FD":
        big = big + 1j * rng.standard_normal(big.shape)
    return np.array(big, char, order=order)[:m, :n]


def close(got, expected, inner):
    """Compare to a rounding bound for sums of `inner` products."""
    eps = np.finfo(got.dtype).eps
    return np.abs(got - expected).max(initial=0) <= 20 * (inner + 1) * eps * max(np.abs(expected).max(initial=0), 1)


def op(a, t):
    """Apply an op of BLAS."""
    return {"N": a, "T": a.T, "C": a.conj().T}[t]


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize("orders", list(itertools.product("CF", repeat=3)))
def test_gemm(char, orders):
    """All ops, orders and leading dimensions; C starts as NaN where beta is zero."""
    rng = np.random.default_rng(0)
    for ta, tb in itertools.product("NTC", repeat=2):
        m, n, inner = 5, 4, 7
        a = random(rng, (m, inner) if ta == "N" else (inner, m), char, orders[0], 2)
        b = random(rng, (inner, n) if tb == "N" else (n, inner), char, orders[1], 1)
        c = random(rng, (m, n), char, orders[2], 3)
        conjugates = char in "FD" and "C" in (ta + tb)
        forbidden = conjugates and ((ta == "C" and orders[0] == "C") or (tb == "C" and orders[1] == "C") or orders[2] == "C")
        if forbidden:
            with pytest.raises(ValueError, match="conjugate"):
                k.gemm(1.0, a, b, 0.0, c, ta, tb)
            continue
        expected = 2 * (op(a, ta) @ op(b, tb)) - c
        k.gemm(2.0, a, b, -1.0, c, ta, tb)
        assert close(c, expected, inner)
        c[...] = np.nan
        k.gemm(1.0, a, b, 0.0, c, ta, tb)
        assert close(c, op(a, ta) @ op(b, tb), inner)


def test_gemm_edges():
    """Empty operands, and what does not fit."""
    c = np.full((3, 2), np.nan)
    k.gemm(1.0, np.zeros((3, 0)), np.zeros((0, 2)), 0.0, c)
    assert (c == 0).all()
    k.gemm(1.0, np.zeros((0, 4)), np.zeros((4, 2)), 0.0, np.zeros((0, 2)))
    with pytest.raises(ValueError, match="do not match"):
        k.gemm(1.0, np.zeros((3, 2)), np.zeros((3, 2)), 0.0, c)
    with pytest.raises(TypeError, match="no BLAS kernel"):
        k.gemm(1.0, np.zeros((3, 3), int), np.zeros((3, 2), int), 0.0, np.zeros((3, 2), int))
    with pytest.raises(ValueError, match="no unit stride"):
        k.gemm(1.0, np.zeros((6, 6))[::2, ::2], np.zeros((3, 2)), 0.0, c)
    with pytest.raises(ValueError, match="choose from"):
        k.gemm(1.0, np.zeros((3, 3)), np.zeros((3, 2)), 0.0, c, "X")


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize(("side", "uplo", "trans", "diag"), list(itertools.product("LR", "LU", "NTC", "NU")))
def test_trsm(char, side, uplo, trans, diag):
    """All sixteen kinds in all orders; the other triangle is NaN."""
    rng = np.random.default_rng(1)
    for order_a, order_b in itertools.product("CF", repeat=2):
        n, m = 5, 3
        full = (random(rng, (n, n), char) / 4 + 2 * np.eye(n)).astype(char)
        keep = np.tri(n, dtype=bool) if uplo == "L" else np.tri(n, dtype=bool).T
        a = np.array(np.where(keep, full, np.nan), char, order=order_a)
        t = np.where(keep, full, 0)
        if diag == "U":
            np.fill_diagonal(t, 1)
        b = random(rng, (n, m) if side == "L" else (m, n), char, order_b, 2)
        before = b.copy()
        k.trsm(side, uplo, trans, diag, 2.0, a, b)
        t = t.astype(char)
        back = op(t, trans) @ b if side == "L" else b @ op(t, trans)
        assert close(back, 2 * before, n)


@pytest.mark.parametrize("char", DTYPES)
def test_factors(char):
    """potrf, getrf and herk."""
    rng = np.random.default_rng(2)
    n = 9
    g = random(rng, (n, n), char)
    spd = np.asfortranarray((g @ g.conj().T + n * np.eye(n)).astype(char))
    for uplo in "LU":
        f = spd.copy(order="F")
        assert k.potrf(uplo, f) == 0
        t = np.tril(f) if uplo == "L" else np.triu(f)
        assert close(t @ t.conj().T if uplo == "L" else t.conj().T @ t, spd, n)
    bad = spd.copy(order="F")
    bad[4, 4] = -1
    assert k.potrf("L", bad) == 5
    a = random(rng, (n, 6), char, pad=3)
    lu, piv = a.copy(order="F"), np.zeros(6, np.int32)
    assert k.getrf(lu, piv) == 0
    p = np.arange(n)
    for i, j in enumerate(piv - 1):
        p[[i, j]] = p[[j, i]]
    assert close((np.tril(lu, -1) + np.eye(n, 6, dtype=char)) @ np.triu(lu[:6]), a[p], n)
    c = np.zeros((n, n), char, order="F")
    k.herk("L", "N", 1.0, a, 0.0, c)
    assert close(np.tril(c), np.tril(a @ a.conj().T), 6)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("order", "CF")
def test_laswp(dtype, order):
    """Overlapping exchanges of rows happen at once."""
    rng = np.random.default_rng(3)
    a = np.array(rng.standard_normal((12, 7)), dtype, order=order)
    expected = a.copy()
    source, target = rng.permutation(12)[:6].astype(np.int64), rng.permutation(12)[:6].astype(np.int64)
    expected[target] = a[source]
    k.laswp(a, source, target)
    assert np.array_equal(a, expected)
    with pytest.raises(IndexError, match="12 places"):
        k.laswp(a, np.array([12]), np.array([0]))


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "i8", "u2", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_copy_indexed(dtype):
    """dst[ix_] = src[ix_] and += in one to four axes, any order and sign of strides."""
    rng = np.random.default_rng(4)
    for trial in range(60):
        ndim = int(rng.integers(1, 5))
        shape = tuple(int(n) for n in rng.integers(1, 7, ndim))
        arrays = []
        for _ in range(2):
            order = rng.permutation(ndim)
            a = (rng.integers(0, 2, [2 * shape[x] for x in order])).astype(dtype).transpose(np.argsort(order))
            arrays.append(a[tuple(slice(None, None, int(rng.choice([-2, -1, 1]))) for _ in shape)])
        src, dst = arrays
        counts = [int(rng.integers(0, n + 1)) for n in shape]
        di = [np.sort(rng.permutation(dst.shape[x])[:c]).astype(np.int64) for x, c in enumerate(counts)]
        si = [rng.integers(0, src.shape[x], c) if trial % 2 else np.arange(c) for x, c in enumerate(counts)]
        expected = dst.copy()
        expected[np.ix_(*di)] = src[np.ix_(*si)]
        before = dst.copy()
        k.copy_indexed(dst, di, src, si)
        assert np.array_equal(dst, expected)
        if dtype not in ("?", "f2"):
            added = before.copy()
            added[np.ix_(*di)] += src[np.ix_(*si)]
            k.copy_indexed(before, di, src, si, True)
            assert np.array_equal(before, added)
        elif 0 not in counts:
            with pytest.raises(TypeError, match="cannot add"):
                k.copy_indexed(before, di, src, si, True)


def test_copy_indexed_checks():
    """Wrong indices, lengths and dtypes are refused before anything is written."""
    a = np.zeros((3, 3))
    i = np.arange(3)
    with pytest.raises(IndexError, match="3 places"):
        k.copy_indexed(a, [i, np.array([3])], a.copy(), [i, np.array([0])])
    with pytest.raises(ValueError, match="target"):
        k.copy_indexed(a, [i, i], a.copy(), [i, i[:2]])
    with pytest.raises(TypeError, match="dtypes differ"):
        k.copy_indexed(a, [i, i], np.zeros((3, 3), "f4"), [i, i])
