"""Factorisations and solves on every grid: the testers' residual ratios, pivots, errors."""

import numpy as np
import pytest
import scipy.linalg as sl
from _dist import DTYPES, all_raises, all_ranks, random_matrix
from _ratios import check, cholesky, lu, solve, triangular

import pypto
from pypto.layout.grid import factorings

SIZES = [(n, nb) for n in (0, 1, 2, 5, 9, 17) for nb in (1, 2, 4, n + 1)] + [(50, 8), (101, 16), (130, 33)]


def _cases(p, rng, count):
    """Sample (n, nb, grid) with every grid of p ranks in it."""
    grids = factorings(p)
    picks = rng.permutation(len(SIZES))[:count]
    return [(*SIZES[i], grids[k % len(grids)]) for k, i in enumerate(picks)]


@pytest.mark.parametrize("char", DTYPES)
def test_lu(ctx, rng, char):
    """A = P L U under ScaLAPACK's threshold; pivots are SciPy's."""
    for n, nb, grid in _cases(ctx.size, rng, 14):
        for m in (n, n + 7, max(n - 3, 0)):
            a = random_matrix(rng, (m, n), char)
            x = pypto.asarray(a, distribution=pypto.BlockCyclic(nb, grid))
            p, l, u = (np.asarray(f) for f in pypto.linalg.lu(x))
            bad = check(lu(a, p, l, u)) if a.size else p.shape != (0, 0)
            _, piv = pypto.linalg.lu_factor(x)
            same = m == 0 or n == 0 or np.array_equal(np.asarray(piv), sl.lu_factor(a)[1])
            all_ranks(ctx, not bad and same, f"{char} {m}x{n} nb={nb} grid={grid}: {bad} pivots equal: {same}")


@pytest.mark.parametrize("char", DTYPES)
def test_solve(ctx, rng, char):
    """HPL's and LAPACK's ratios for one and several right-hand sides, and the transposed systems."""
    for n, nb, grid in _cases(ctx.size, rng, 10):
        a = random_matrix(rng, (n, n), char)
        b = random_matrix(rng, (n, 3), char)
        x = pypto.asarray(a, distribution=pypto.BlockCyclic(nb, grid))
        bad = check(solve(a, np.asarray(pypto.linalg.solve(x, b)), b))
        bad |= check(solve(a, np.asarray(pypto.linalg.solve(x, b[:, 0])), b[:, 0]))
        factors = pypto.linalg.lu_factor(x)
        for trans, op in ((0, a), (1, a.T), (2, a.conj().T)):
            bad |= check(solve(op, np.asarray(pypto.linalg.lu_solve(factors, b, trans=trans)), b))
        all_ranks(ctx, not bad, f"{char} n={n} nb={nb} grid={grid}: {bad}")


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(ctx, rng, char, lower):
    """A = L L^H under ScaLAPACK's threshold; the triangle that is not named may hold NaN."""
    for n, nb, grid in _cases(ctx.size, rng, 10):
        g = random_matrix(rng, (n, n), char)
        a = (g @ g.conj().T + n * np.eye(n)).astype(char)
        half = np.where(np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T, a, np.nan).astype(char)
        x = pypto.asarray(half, distribution=pypto.BlockCyclic(nb, grid))
        f = np.asarray(pypto.linalg.cholesky(x, lower=lower, check_finite=False))
        bad = check(cholesky(a, f if lower else f.conj().T))
        b = random_matrix(rng, (n, 2), char)
        c = pypto.linalg.cho_factor(pypto.asarray(a, distribution=pypto.BlockCyclic(nb, grid)), lower=lower)
        bad |= check(solve(a, np.asarray(pypto.linalg.cho_solve(c, b)), b))
        all_ranks(ctx, not bad, f"{char} n={n} nb={nb} grid={grid} lower={lower}: {bad}")


@pytest.mark.parametrize("char", DTYPES)
def test_solve_triangular(ctx, rng, char):
    """Both triangles, three forms, unit and stored diagonals; the other triangle is NaN."""
    for n, nb, grid in _cases(ctx.size, rng, 6):
        full = random_matrix(rng, (n, n), char) / max(n, 1) + 2 * np.eye(n, dtype=char)
        b = random_matrix(rng, (n, 4), char)
        for lower in (True, False):
            keep = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
            x = pypto.asarray(np.where(keep, full, np.nan).astype(char), distribution=pypto.BlockCyclic(nb, grid))
            for unit in (False, True):
                t = np.where(keep, full, 0)
                if unit:
                    np.fill_diagonal(t, 1)
                for trans, op in ((0, t), (1, t.T), (2, t.conj().T)):
                    y = pypto.linalg.solve_triangular(
                        x, b, trans=trans, lower=lower, unit_diagonal=unit, check_finite=False
                    )
                    bad = check(triangular(op, np.asarray(y), b))
                    all_ranks(ctx, not bad, f"{char} n={n} nb={nb} {grid} lower={lower} trans={trans} unit={unit}: {bad}")


def test_assume_a(ctx, rng):
    """Every structure that SciPy knows, reading the named part only."""
    n = 23
    a = random_matrix(rng, (n, n), "d") + n * np.eye(n)
    b = random_matrix(rng, (n, 2), "d")
    sym = a + a.T
    her = random_matrix(rng, (n, n), "D") + n * np.eye(n)
    her = her + her.conj().T
    for name, m, kw in (
        ("gen", a, {}),
        ("sym", sym, {"lower": True}),
        ("sym", sym, {}),
        ("her", her, {"lower": True}),
        ("pos", sym + 2 * n * np.eye(n), {}),
        ("upper triangular", np.triu(a), {}),
        ("lower triangular", np.tril(a), {}),
        ("diagonal", np.diag(np.diag(a)), {}),
        ("tridiagonal", np.triu(np.tril(a, 1), -1), {}),
        ("banded", np.triu(np.tril(a, 2), -3), {}),
    ):
        x = np.asarray(pypto.linalg.solve(pypto.asarray(m), b.astype(m.dtype), assume_a=name, **kw))
        bad = check(solve(m, x, b.astype(m.dtype)))
        all_ranks(ctx, not bad, f"{name} {kw}: {bad}")


def test_failures_are_the_same_everywhere(ctx, rng):
    """Singular, indefinite and non-finite matrices end in SciPy's exception on every rank; life goes on."""
    a = random_matrix(rng, (20, 20), "d")
    singular = a.copy()
    singular[:, 7] = 0
    for dist in ("auto", pypto.BlockCyclic(3)):
        with all_raises(ctx, np.linalg.LinAlgError, "singular"):
            pypto.linalg.solve(pypto.asarray(singular, distribution=dist), np.ones(20)).compute()
        with all_raises(ctx, np.linalg.LinAlgError, "3-th leading minor"):
            pypto.linalg.cholesky(pypto.asarray(np.diag([2.0, 1, -1, 5]), distribution=dist)).compute()
        broken = a.copy()
        broken[13, 2] = np.nan
        with all_raises(ctx, ValueError, "infs or NaNs"):
            pypto.linalg.solve(pypto.asarray(broken, distribution=dist), np.ones(20)).compute()
        x = pypto.linalg.lu_factor(pypto.asarray(broken, distribution=dist), check_finite=False)[0]
        all_ranks(ctx, np.isnan(np.asarray(x)).any(), "a NaN must show")
        with all_raises(ctx, np.linalg.LinAlgError, "diagonal 3"):
            t = np.eye(6)
            t[3, 3] = 0
            pypto.linalg.solve_triangular(pypto.asarray(t, distribution=dist), np.ones(6)).compute()
    x = np.asarray(pypto.linalg.solve(pypto.asarray(a), np.ones(20)))
    all_ranks(ctx, not check(solve(a, x, np.ones(20))))


def test_operands_are_never_changed(ctx, rng):
    """A solve factors a copy; a factor computed once serves many right-hand sides."""
    a, b = random_matrix(rng, (40, 40), "d"), random_matrix(rng, (40, 2), "d")
    x, y = pypto.asarray(a).compute(), pypto.asarray(b).compute()
    pypto.compute(pypto.linalg.solve(x, y), pypto.linalg.lu_factor(x)[0], pypto.linalg.cholesky(x @ x.T + pypto.eye(40)))
    all_ranks(ctx, np.array_equal(np.asarray(x), a) and np.array_equal(np.asarray(y), b))


def test_batches(ctx, rng):
    """Leading axes are problems of their own."""
    a = random_matrix(rng, (5, 2, 6, 6), "d") + 6 * np.eye(6)
    b = random_matrix(rng, (5, 2, 6, 3), "d")
    x = np.asarray(pypto.linalg.solve(a, b))
    bad = {}
    for at in np.ndindex(5, 2):
        bad |= check(solve(a[at], x[at], b[at]))
    all_ranks(ctx, not bad, bad)
    singular = a.copy()
    singular[3, 1] = 0
    with all_raises(ctx, np.linalg.LinAlgError):
        pypto.linalg.solve(singular, b).compute()


def test_operands_of_two_types(ctx, rng):
    """A real matrix and a complex right-hand side, and the other way round, in either precision, by every solve."""
    n = 12
    g = rng.standard_normal((n, n))
    spd = g @ g.T + n * np.eye(n)
    for first in DTYPES:
        for second in DTYPES:
            a, b = spd.astype(first), random_matrix(rng, (n, 2), second)
            low = np.tril(a)
            wide = np.result_type(first, second)
            for made, m in (
                (pypto.linalg.solve(a, b), a),
                (pypto.linalg.solve(a, b, assume_a="pos"), a),
                (pypto.linalg.lu_solve(pypto.linalg.lu_factor(a), b), a),
                (pypto.linalg.cho_solve(pypto.linalg.cho_factor(a), b), a),
                (pypto.linalg.solve_triangular(low, b, lower=True), low),
                (pypto.linalg.solve_triangular(low, b, lower=True, trans=2), low.conj().T),
                (pypto.linalg.solve_banded((0, 0), np.diag(a)[np.newaxis], b), np.diag(np.diag(a))),
            ):
                single = np.finfo(first).eps > 1e-10 or np.finfo(second).eps > 1e-10
                m, x = m.astype("F" if single else "D"), np.asarray(made)
                bad = check(solve(m, x, b))
                all_ranks(ctx, x.dtype == wide and not bad, f"{first} {second}: {x.dtype} {bad}")
