"""QR, LDL^T, least squares and what is read off factorisations: residual ratios on every grid, against SciPy's meaning."""

import numpy as np
import pytest
import scipy.linalg as sl
from _dist import DTYPES, all_raises, all_ranks, random_matrix
from _ratios import check, least_squares, qr, solve, symmetric

import pypto
from pypto.layout.grid import factorings

SHAPES = [(m, n) for m in (0, 1, 2, 5, 9, 17) for n in (0, 1, 3, 8, 17)] + [(60, 40), (40, 60), (130, 33), (200, 9), (90, 90)]


def _cases(p, rng, count, shapes=SHAPES):
    """Sample (shape, nb, grid): every grid of p ranks, the large shapes among them."""
    grids = factorings(p)
    for k in range(count):
        shape = shapes[-1 - k % 5] if k % 3 == 0 else shapes[rng.integers(len(shapes))]
        yield shape, int(rng.choice([1, 2, 3, 8, 32])), grids[k % len(grids)]


def _array(a, nb, grid):
    return pypto.asarray(a, distribution=pypto.BlockCyclic(nb, grid))


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize("pivoting", [False, True])
def test_qr(ctx, rng, char, pivoting):
    """A = Q R and Q^H Q = I under LAPACK's threshold in every mode; R is the same in all of them."""
    for (m, n), nb, grid in _cases(ctx.size, rng, 9):
        a = random_matrix(rng, (m, n), char)
        if pivoting and min(m, n) > 4:
            a[:, 2] = a[:, 0] * 2  # not of full rank
            a[:, 3] *= 1e-6
        x = _array(a, nb, grid)
        for mode in ("full", "economic"):
            q, r, *perm = (np.asarray(f) for f in pypto.linalg.qr(x, mode=mode, pivoting=pivoting))
            moved = a[:, perm[0]] if pivoting else a
            like = sl.qr(a, mode=mode) if 0 not in a.shape else (q, r)
            bad = check(qr(moved, q, r))
            fine = not bad and q.shape == like[0].shape and r.shape == like[1].shape and np.array_equal(r, np.triu(r))
            if pivoting and min(m, n):
                d = np.abs(np.diag(r))
                fine &= bool((d[1:] <= d[:-1] * (1 + 1e-4)).all()) and sorted(perm[0]) == list(range(n))
            all_ranks(ctx, fine, f"{char} {m}x{n} nb={nb} grid={grid} {mode}: {bad} {q.shape} {r.shape}")
        (only, *_) = pypto.linalg.qr(x, mode="r", pivoting=pivoting)
        raw, top, *_ = pypto.linalg.qr(x, mode="raw", pivoting=pivoting)
        k = min(m, n)
        same = np.array_equal(np.asarray(only)[:k], np.asarray(top)) and np.array_equal(np.triu(np.asarray(raw[0]))[:k], top)
        tall = m >= 4 * ctx.size * n and ctx.size > 1 and not pivoting  # then "r" takes another way
        all_ranks(ctx, (same or tall) and only.shape == (m, n), f"{char} {m}x{n} nb={nb} grid={grid}: r, raw")


@pytest.mark.parametrize("char", DTYPES)
def test_tall_qr(ctx, rng, char):
    """A tree over the ranks, ranks with few rows or none, values at the ends of the range."""
    for m, n in ((400, 11), (1000, 5), (33, 1), (24, 1), (2000, 64)):
        for scale in (1, np.finfo(char).tiny * 1e4, np.finfo(char).max / 1e4):
            a = (random_matrix(rng, (m, n), char) * scale).astype(char)
            q, r = (np.asarray(f) for f in pypto.linalg.qr(pypto.asarray(a, distribution="row"), mode="economic"))
            wide = a.astype(np.result_type(char, "d")) / scale
            bad = check(qr(wide.astype(char), q, (r / np.dtype(char).type(scale)).astype(char)))
            all_ranks(ctx, not bad, f"{char} {m}x{n} {scale:g}: {bad}")


@pytest.mark.parametrize("char", DTYPES)
def test_rq_and_qr_multiply(ctx, rng, char):
    """A = R Q; products with Q without Q."""
    for (m, n), nb, grid in _cases(ctx.size, rng, 5):
        if 0 in (m, n):
            continue
        a = random_matrix(rng, (m, n), char)
        x = _array(a, nb, grid)
        r, q = (np.asarray(f) for f in pypto.linalg.rq(x))
        bad = check(qr(a.conj().T, q.conj().T, r.conj().T))
        k = min(m, n)
        economic = np.asarray(pypto.linalg.qr(x, mode="raw")[1])
        c, d = random_matrix(rng, (k, 3), char), random_matrix(rng, (2, m), char)
        left, top = pypto.linalg.qr_multiply(x, c, "left")
        right, _ = pypto.linalg.qr_multiply(x, d, "right")
        identity = np.asarray(pypto.linalg.qr_multiply(x, np.eye(k, dtype=char), "left")[0])
        eps = 100 * max(m, n) * np.finfo(char).eps
        fine = np.array_equal(np.asarray(top), economic) and not check(qr(a, identity, economic))
        fine &= np.abs(np.asarray(left) - identity @ c).max() <= eps and np.abs(np.asarray(right) - d @ identity).max() <= eps
        all_ranks(ctx, not bad and fine, f"{char} {m}x{n} nb={nb} grid={grid}: {bad}")


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize("lower", [True, False])
def test_ldl(ctx, rng, char, lower):
    """A = L D L^H, blocks of order one and two, the other triangle not read; SciPy's structure."""
    for n, nb, grid in ((0, 2, 0), (1, 1, 0), (2, 1, 1), (7, 2, 2), (17, 3, 3), (40, 8, 0), (70, 5, 1), (101, 16, 2), (65, 32, 3)):
        grids = factorings(ctx.size)
        grid = grids[grid % len(grids)]
        for hermitian in (True, False) if char in "FD" else (True,):
            g = random_matrix(rng, (n, n), char)
            a = (g + (g.conj().T if hermitian else g.T)).astype(char)
            np.fill_diagonal(a, a.diagonal() * (rng.random(n) < 0.5))  # zeros on the diagonal call for blocks of two
            keep = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
            x = _array(np.where(keep, a, np.nan).astype(char), nb, grid)
            made = pypto.linalg.ldl(x, lower=lower, hermitian=hermitian, check_finite=False)
            u, d, perm = (np.asarray(f) for f in made)
            bad = check(symmetric(a, u, d, hermitian))
            t = u[perm]
            shape = np.array_equal(t, np.tril(t) if lower else np.triu(t)) and np.array_equal(t.diagonal(), np.ones(n))
            fine = not bad and shape and np.array_equal(d, np.triu(np.tril(d, 1), -1)) and sorted(perm) == list(range(n))
            if n > 1:
                both = np.abs(t.diagonal(-1 if lower else 1)) * np.abs(d.diagonal(-1 if lower else 1))
                fine &= not both.any() and np.abs(t).max() < 10
            all_ranks(ctx, fine, f"{char} n={n} nb={nb} grid={grid} lower={lower} hermitian={hermitian}: {bad}")


@pytest.mark.parametrize("char", DTYPES)
def test_indefinite_solves(ctx, rng, char):
    """assume_a="sym" and "her" read one triangle, which the structure search does not need."""
    for n, nb, grid in ((1, 1, 0), (2, 1, 1), (9, 2, 2), (23, 3, 3), (80, 16, 1), (67, 8, 2)):
        grids = factorings(ctx.size)
        grid = grids[grid % len(grids)]
        b = random_matrix(rng, (n, 3), char)
        for kind in ("sym", "her"):
            g = random_matrix(rng, (n, n), char)
            a = (g + (g.conj().T if kind == "her" else g.T)).astype(char)
            for lower in (True, False):
                keep = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
                x = _array(np.where(keep, a, np.nan).astype(char), nb, grid)
                made = pypto.linalg.solve(x, b, lower=lower, assume_a=kind, check_finite=False)
                bad = check(solve(a, np.asarray(made), b))
                all_ranks(ctx, not bad, f"{char} {kind} n={n} nb={nb} grid={grid} lower={lower}: {bad}")
            bad = check(solve(a, np.asarray(pypto.linalg.solve(_array(a, nb, grid), b)), b))
            all_ranks(ctx, not bad, f"{char} {kind} seen n={n} nb={nb} grid={grid}: {bad}")


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize("driver", ["gelsd", "gelsy"])
def test_lstsq(ctx, rng, char, driver):
    """Tall, wide, square, rank-deficient: SciPy's rank, residues and minimum norm."""
    shapes = ((60, 20), (20, 60), (30, 30), (400, 7), (5, 1), (1, 5), (41, 38))
    for (m, n), nb, grid in _cases(ctx.size, rng, 8, shapes):
        for deficient in (False, True):
            a = random_matrix(rng, (m, n), char)
            if deficient and min(m, n) > 3:
                a = (random_matrix(rng, (m, 3), char) @ random_matrix(rng, (3, n), char)).astype(char)
            cond = 100 * max(m, n) * np.finfo(char).eps
            for b in (random_matrix(rng, (m, 4), char), random_matrix(rng, (m,), char)):
                x, residues, rank, s = pypto.linalg.lstsq(_array(a, nb, grid), b, cond=cond, lapack_driver=driver)
                expected = sl.lstsq(a, b, cond=cond)
                x = np.asarray(x)
                bad = check(least_squares(a, x, b, expected[0]))
                fine = rank == expected[2] and x.shape == expected[0].shape
                if driver == "gelsd":
                    top = expected[3].max()
                    fine &= np.abs(np.asarray(s) - expected[3]).max() <= 50 * max(m, n) * np.finfo(char).eps * top
                    fine &= np.asarray(residues).shape == (b.shape[1:] if m > n else (0,))
                    if m > n and rank == n:
                        fine &= np.allclose(np.asarray(residues), expected[1], rtol=1e3 * np.finfo(char).eps)
                    else:
                        fine &= bool(np.isnan(np.asarray(residues)).all())
                all_ranks(ctx, not bad and fine, f"{char} {m}x{n} nb={nb} {grid} rank {rank}/{expected[2]} {b.shape}: {bad}")


@pytest.mark.parametrize("char", DTYPES)
def test_pinv_and_inv(ctx, rng, char):
    """The four equations of Penrose; the two sides of an inverse."""
    eps = np.finfo(char).eps
    for (m, n), nb, grid in _cases(ctx.size, rng, 5, ((30, 12), (12, 30), (25, 25), (200, 6), (9, 4))):
        a = random_matrix(rng, (m, n), char)
        a[:, -1] = a[:, 0]
        b, rank = (np.asarray(f) for f in pypto.linalg.pinv(_array(a, nb, grid), return_rank=True))
        tol = 100 * max(m, n) * eps * np.linalg.norm(a, 2) * np.linalg.norm(b, 2)
        p, q = a @ b, b @ a
        fine = rank == np.linalg.matrix_rank(a) and np.abs(p @ a - a).max() <= tol * np.linalg.norm(a, 2)
        fine &= np.abs(q @ b - b).max() <= tol * np.linalg.norm(b, 2)
        fine &= max(np.abs(p - p.conj().T).max(), np.abs(q - q.conj().T).max()) <= tol
        all_ranks(ctx, fine, f"pinv {char} {m}x{n} nb={nb} {grid} rank {rank}")
    for n in (1, 4, 33):
        a = random_matrix(rng, (n, n), char)
        positive = a @ a.conj().T + np.eye(n, dtype=char)
        for x, kind in ((a, None), (positive, "pos"), (np.tril(a) + 3 * np.eye(n, dtype=char), "lower triangular")):
            x = x.astype(char)
            y = np.asarray(pypto.linalg.inv(x, assume_a=kind))
            # LAPACK DGET03: ||I - A A^-1|| / (n ||A|| ||A^-1|| eps) below 30
            ratio = np.linalg.norm(np.eye(n) - x @ y, 1) / (n * np.linalg.norm(x, 1) * np.linalg.norm(y, 1) * eps / 2)
            all_ranks(ctx, ratio < 30, f"inv {char} {n} {kind}: {ratio}")


@pytest.mark.parametrize("char", DTYPES)
def test_determinants_norms_ranks(ctx, rng, char):
    """det, slogdet, norm, cond, matrix_rank, matrix_power and multi_dot against NumPy's."""
    eps = np.finfo(char).eps
    for n, nb in ((1, 1), (4, 2), (21, 4)):
        a = random_matrix(rng, (n, n), char)
        x = _array(a, nb, factorings(ctx.size)[-1])
        det = np.asarray(pypto.linalg.det(x))
        sign, log = (np.asarray(v) for v in pypto.linalg.slogdet(x))
        expected = np.linalg.slogdet(a.astype(np.result_type(char, "d")))
        near = lambda u, v, f=200: np.abs(u - v) <= f * n * n * eps * max(abs(v), 1)
        fine = near(sign, expected[0]) and near(log, expected[1]) and near(det / sl.det(a), 1)
        fine &= det.dtype == np.result_type(char, "d")
        for ord in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
            fine &= bool(near(np.asarray(pypto.linalg.norm(x, ord)), np.linalg.norm(a, ord)))
        for p in (None, 1, "fro"):
            fine &= bool(np.abs(np.asarray(pypto.linalg.cond(x, p)) / np.linalg.cond(a, p) - 1) < 1e-2)
        fine &= int(pypto.linalg.matrix_rank(x)) == np.linalg.matrix_rank(a)
        power = np.asarray(pypto.linalg.matrix_power(x, 3))
        fine &= np.abs(power - a @ a @ a).max() <= 100 * n * eps * np.abs(a).max() ** 3 * n * n
        dots = np.asarray(pypto.linalg.multi_dot([a[0], x, x, a[:, 0]]))
        fine &= bool(near(dots, np.linalg.multi_dot([a[0], a, a, a[:, 0]]), 1000 * n))
        all_ranks(ctx, fine, f"{char} {n}: {det} {sign} {log}")
    broken = random_matrix(rng, (5, 4), char)
    broken[2, 1] = np.nan
    for ord in (None, "fro", 1, -1, np.inf, -np.inf):
        all_ranks(ctx, np.isnan(float(np.asarray(pypto.linalg.norm(broken, ord, check_finite=False)))), f"norm {ord} of NaN")


def test_rows_of_a_solve_are_one_structure(ctx, rng):
    """What solve sees in a matrix: a band, a triangle, a diagonal, symmetry; singular ones of each kind."""
    n = 60
    a = random_matrix(rng, (n, n), "d")
    b = random_matrix(rng, (n, 2), "d")
    strong = a + n * np.eye(n)
    kinds = {
        "general": a,
        "symmetric": a + a.T,
        "positive definite": a @ a.T + np.eye(n),
        "upper": np.triu(strong),
        "lower": np.tril(strong),
        "diagonal": np.diag(strong.diagonal()),
        "tridiagonal": np.triu(np.tril(strong, 1), -1),
        "banded": np.triu(np.tril(strong, 1), -1),
    }
    for dist in ("auto", pypto.BlockCyclic(7, factorings(ctx.size)[-1])):
        for name, m in kinds.items():
            x = np.asarray(pypto.linalg.solve(pypto.asarray(m, distribution=dist), b))
            bad = check(solve(m, x, b))
            all_ranks(ctx, not bad, f"{name} {dist}: {bad}")
            if name in ("upper", "lower", "diagonal"):
                m = m.copy()
                m[5, 5] = 0
                with all_raises(ctx, np.linalg.LinAlgError):
                    pypto.linalg.solve(pypto.asarray(m, distribution=dist), b).compute()


def test_banded(ctx, rng):
    """solve_banded and solveh_banded, few and many right-hand sides."""
    n = 50
    for below, above in ((0, 0), (1, 1), (2, 3), (0, 2), (4, 0)):
        a = np.triu(np.tril(random_matrix(rng, (n, n), "D"), above), -below) + 9 * np.eye(n)
        ab = np.zeros((below + above + 1, n), complex)
        for i in range(n):
            for j in range(max(0, i - below), min(n, i + above + 1)):
                ab[above + i - j, j] = a[i, j]
        for b in (random_matrix(rng, (n, 5), "D"), random_matrix(rng, (n,), "D")):
            bad = check(solve(a, np.asarray(pypto.linalg.solve_banded((below, above), ab, b)), b))
            all_ranks(ctx, not bad, f"{below} {above}: {bad}")
    a = np.diag(np.full(n, 4.0)) + np.diag(np.full(n - 1, 1.0), 1) + np.diag(np.full(n - 1, 1.0), -1)
    ab = np.array([np.full(n, 4.0), np.full(n, 1.0)])
    b = random_matrix(rng, (n, 2), "d")
    bad = check(solve(a, np.asarray(pypto.linalg.solveh_banded(ab, b, lower=True)), b))
    all_ranks(ctx, not bad, bad)
    with all_raises(ctx, np.linalg.LinAlgError):
        pypto.linalg.solveh_banded(-ab, b, lower=True).compute()


def test_batches_of_decompositions(ctx, rng):
    """Leading axes are problems of their own for every function."""
    a = random_matrix(rng, (3, 2, 6, 4), "d")
    s = random_matrix(rng, (3, 2, 5, 5), "d")
    b = random_matrix(rng, (3, 2, 6, 2), "d")
    q, r = (np.asarray(f) for f in pypto.linalg.qr(a, mode="economic"))
    p, l, u = (np.asarray(f) for f in pypto.linalg.lu(a))
    x, *_ = pypto.linalg.lstsq(a, b)
    low, d, perm = (np.asarray(f) for f in pypto.linalg.ldl(s))
    pin, inv, det = (np.asarray(f) for f in (pypto.linalg.pinv(a), pypto.linalg.inv(s), pypto.linalg.det(s)))
    bad = {}
    for i in np.ndindex(3, 2):
        bad |= check(qr(a[i], q[i], r[i]))
        full = s[i] if False else np.tril(s[i]) + np.tril(s[i], -1).T
        bad |= check(symmetric(full, low[i], d[i], True))
        fine = np.allclose(p[i] @ l[i] @ u[i], a[i], atol=1e-14) and np.allclose(pin[i] @ a[i], np.eye(4), atol=1e-12)
        fine &= np.allclose(np.asarray(x)[i], pin[i] @ b[i], atol=1e-12) and np.allclose(inv[i] @ s[i], np.eye(5), atol=1e-11)
        fine &= np.isclose(det[i], np.linalg.det(s[i]))
        all_ranks(ctx, fine and not bad, f"{i}: {bad}")


def test_permuted_lu(ctx, rng):
    """lu with permute_l and p_indices, tall and wide."""
    for shape in ((9, 5), (5, 9), (20, 20)):
        a = random_matrix(rng, shape, "D")
        x = _array(a, 3, factorings(ctx.size)[0])
        pl, u = (np.asarray(f) for f in pypto.linalg.lu(x, permute_l=True))
        p, l, v = (np.asarray(f) for f in pypto.linalg.lu(x, p_indices=True))
        bound = 30 * max(shape) * np.finfo("d").eps * np.abs(a).max()
        fine = np.abs(pl @ u - a).max() <= bound and np.abs(l[p] @ v - a).max() <= bound
        all_ranks(ctx, fine, shape)
