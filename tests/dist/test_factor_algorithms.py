"""The factorisations on tiles themselves: every grid, any first owner, permuted and left-out ranks, odd values."""

import time

import numpy as np
import pytest
import scipy.linalg as sl
from _dist import DTYPES, all_ranks, random_matrix
from _ratios import check, cholesky, lu, solve, triangular

from pypto.config import settings
from pypto.device.cpu import WorkQueue
from pypto.layout.grid import ProcessGrid, factorings
from pypto.layout.layout import Cyclic, Layout
from pypto.linalg import _tiled
from pypto.linalg._cholesky import potrf, potrs
from pypto.linalg._lu import getrf, getrs, permute_rows
from pypto.linalg._triangular import FEW, trsm, trsm_layout
from pypto.tiles.tiled import TiledArray

SIZES = [(n, nb) for n in range(18) for nb in (1, 2, 3, 5, n + 1)] + [(61, 8), (67, 13), (101, 16), (103, 40)]


def _grids(p):
    """Every grid of p ranks, one in reversed order, and one that leaves the first rank out."""
    grids = [ProcessGrid.of(shape) for shape in factorings(p)]
    grids.append(ProcessGrid.of(factorings(p)[-1], tuple(reversed(range(p)))))
    if p > 1:
        grids.append(ProcessGrid.of(factorings(p - 1)[len(factorings(p - 1)) // 2], tuple(range(1, p))))
    return grids


def _cases(world, rng, count):
    """Sample (n, nb, grid, src): `count` small ones and a larger one for every grid."""
    grids = _grids(world.size)
    for i in range(len(grids) * (count + 1)):
        n, nb = SIZES[rng.integers(len(SIZES) - 4)] if i >= len(grids) else SIZES[rng.integers(-4, 0)]
        grid = grids[i % len(grids)]
        yield n, nb, grid, tuple(int(rng.integers(extent)) for extent in grid.shape)


def _layout(shape, nb, grid, src):
    return Layout(shape, grid, (Cyclic(0, nb, src[0]), Cyclic(1, nb, src[1])))


def _scatter(world, layout, a):
    out = TiledArray.empty(layout, a.dtype, world)
    if layout.holds(world.rank):
        out.local[...] = a[np.ix_(layout.indices(0, world.rank), layout.indices(1, world.rank))]
    return out


def _gather(x):
    """Return the whole matrix on every rank."""
    parts = x.world.comm.allgather_object(np.array(x.local))
    out = np.zeros(x.shape, x.dtype)
    for rank in x.layout.grid.ranks:
        out[np.ix_(x.layout.indices(0, rank), x.layout.indices(1, rank))] = parts[rank]
    return out


def _factors(f, pivots):
    """Return P, L, U of a gathered factorisation."""
    m, n = f.shape
    k = min(m, n)
    rows = np.arange(m)
    for i, p in enumerate(pivots):
        rows[[i, p]] = rows[[p, i]]
    p = np.zeros((m, m), f.dtype)
    p[rows, np.arange(m)] = 1
    return p, np.tril(f[:, :k], -1) + np.eye(m, k, dtype=f.dtype), np.triu(f[:k])


def _everywhere(world, layout, pivots):
    """Return the pivots, after checking that the ranks of the grid agree."""
    every = world.comm.allgather_object(pivots)
    inside = [every[r] for r in layout.grid.ranks]
    assert all(np.array_equal(v, inside[0]) and v.dtype == np.int64 for v in inside), every
    return inside[0]


@pytest.mark.parametrize("char", DTYPES)
def test_getrf(ctx, world, rng, char):
    """A = P L U under ScaLAPACK's threshold, square, tall and wide; pivots are SciPy's, the same on every rank."""
    for n, nb, grid, src in _cases(world, rng, 3):
        for shape in ((n, n), (n + 9, n) if rng.integers(2) else (n, n + 9)):
            a = random_matrix(rng, shape, char)
            x = _scatter(world, _layout(shape, nb, grid, src), a)
            pivots, info = getrf(x)
            pivots = _everywhere(world, x.layout, pivots)
            bad = check(lu(a, *_factors(_gather(x), pivots))) if 0 not in shape else {}
            same = 0 in shape or np.array_equal(pivots, sl.lu_factor(a)[1])
            all_ranks(ctx, not bad and same and info == 0, f"{shape} nb={nb} {grid} src={src}: {bad} {same} {info}")


@pytest.mark.parametrize("char", DTYPES)
def test_getrs(ctx, world, rng, char):
    """A X = B and the transposed systems, from one right-hand side to many; permuting there and back is nothing."""
    for n, nb, grid, src in _cases(world, rng, 2):
        a = random_matrix(rng, (n, n), char)
        factor = _scatter(world, _layout((n, n), nb, grid, src), a)
        pivots, _ = getrf(factor)
        for trans, op in (("N", a), ("T", a.T), ("C", a.conj().T)):
            for nrhs in (int(rng.integers(1, 4)), FEW + 9):
                b = random_matrix(rng, (n, nrhs), char)
                x = _scatter(world, trsm_layout(factor.layout, nrhs, trans), b)
                permute_rows(x, pivots, True)
                permute_rows(x, pivots, False)
                same = np.array_equal(_gather(x), b)
                getrs(factor, pivots, x, trans)
                bad = check(solve(op, _gather(x), b))
                all_ranks(ctx, same and not bad, f"n={n} nb={nb} {grid} src={src} {trans} nrhs={nrhs}: {same} {bad}")


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize("lower", [True, False])
def test_potrf(ctx, world, rng, char, lower):
    """A = L L^H under ScaLAPACK's threshold; the other triangle is neither read nor written."""
    for n, nb, grid, src in _cases(world, rng, 2):
        g = random_matrix(rng, (n, n), char)
        a = (g @ g.conj().T + n * np.eye(n)).astype(char)
        named = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
        x = _scatter(world, _layout((n, n), nb, grid, src), np.where(named, a, np.nan).astype(char))
        info = potrf(x, lower)
        f = _gather(x)
        untouched = bool(np.isnan(f[~named]).all())
        low = np.where(named, f, 0) if lower else np.where(named, f, 0).conj().T
        bad = check(cholesky(a, low))
        for nrhs in (1, FEW + 5):
            b = random_matrix(rng, (n, nrhs), char)
            y = _scatter(world, trsm_layout(x.layout, nrhs, "N"), b)
            potrs(x, y, lower)
            bad |= check(solve(a, _gather(y), b))
        all_ranks(ctx, not bad and info == 0 and untouched, f"n={n} nb={nb} {grid} src={src}: {bad} {info} {untouched}")


@pytest.mark.parametrize("char", DTYPES)
def test_trsm(ctx, world, rng, char):
    """Both triangles, three forms, both algorithms; neither the other triangle nor a unit diagonal is read."""
    for n, nb, grid, src in _cases(world, rng, 2):
        full = random_matrix(rng, (n, n), char) / max(n, 1) + 2 * np.eye(n, dtype=char)
        lower, unit = (bool(v) for v in rng.integers(2, size=2))
        stored = np.tri(n, k=-unit, dtype=bool) if lower else np.tri(n, k=-unit, dtype=bool).T
        a = _scatter(world, _layout((n, n), nb, grid, src), np.where(stored, full, np.nan).astype(char))
        t = np.where(stored, full, 0) + (np.eye(n, dtype=char) if unit else 0)
        for trans, op in (("N", t), ("T", t.T), ("C", t.conj().T)):
            for nrhs in (2, FEW + 3):
                b = random_matrix(rng, (n, nrhs), char)
                x = _scatter(world, trsm_layout(a.layout, nrhs, trans), b)
                trsm(a, x, lower, trans, unit)
                bad = check(triangular(op, _gather(x), b))
                text = f"n={n} nb={nb} {grid} src={src} lower={lower} unit={unit} {trans} nrhs={nrhs}: {bad}"
                all_ranks(ctx, not bad, text)


@pytest.mark.parametrize("char", DTYPES)
def test_first_failure(ctx, world, rng, char):
    """The first zero pivot and the first minor that is not positive definite are LAPACK's, the same on every rank and run."""
    n = 24
    singular = random_matrix(rng, (n, n), char)
    singular[:, 17] = singular[:, 9] = 0
    indefinite = np.diag(np.r_[np.ones(11), -1, np.ones(n - 12)]).astype(char)
    for nb in (1, 5, n + 1):
        for grid in _grids(world.size):
            src = tuple(extent - 1 for extent in grid.shape)
            seen = []
            for _ in range(2):
                x = _scatter(world, _layout((n, n), nb, grid, src), singular)
                seen.append(getrf(x)[1])
                for lower in (True, False):
                    x = _scatter(world, _layout((n, n), nb, grid, src), indefinite)
                    seen.append(potrf(x, lower))
            all_ranks(ctx, seen == [10, 12, 12] * 2, f"nb={nb} {grid}: {seen}")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_odd_values_end(ctx, world, rng, value):
    """NaN and Inf anywhere end in a result on which all ranks agree, not in a wait."""
    n = 23
    a = random_matrix(rng, (n, n), "d")
    for place in ((slice(None), 0), (7, slice(None)), (n - 1, n - 1), (slice(None), slice(None))):
        broken = a.copy()
        broken[place] = value
        for nb in (2, 9):
            for grid in _grids(world.size):
                x = _scatter(world, _layout((n, n), nb, grid, (0, 0)), broken)
                pivots, info = getrf(x)
                pivots = _everywhere(world, x.layout, pivots)
                b = _scatter(world, trsm_layout(x.layout, 2, "N"), a[:, :2].copy())
                getrs(x, pivots, b, "N")
                y = _scatter(world, _layout((n, n), nb, grid, (0, 0)), broken)
                infos = set(world.comm.allgather_object((info, potrf(y, True))))
                fine = len(infos) == 1 and bool(np.all((pivots >= np.arange(n)) & (pivots < n)))
                all_ranks(ctx, fine, f"{place} nb={nb} {grid}: {infos} {pivots}")


def test_ties_and_the_measure_of_a_pivot(ctx, world):
    """Of equal candidates the first row wins; complex numbers are measured by |re| + |im| as in LAPACK."""
    n = 12
    ties = np.where(np.tri(n, dtype=bool), -1.0, 1.0)[:, ::-1].copy()
    measure = np.full((n, n), 0.5 + 0.25j)
    measure += np.diag(np.arange(1, n + 1))
    measure[5, 0], measure[8, 0] = 3 + 3j, 4.2 + 0j  # 6 against 4.2, though |3 + 3j| is 4.243
    measure[6, 1] = 5.0
    for a in (ties, measure):
        for nb in (1, 4):
            for grid in _grids(world.size):
                x = _scatter(world, _layout((n, n), nb, grid, (0, 0)), a)
                pivots = _everywhere(world, x.layout, getrf(x)[0])
                expected = sl.lu_factor(a)[1]
                same = np.array_equal(pivots, expected)
                all_ranks(ctx, same, f"nb={nb} {grid}: {pivots} {expected}")


def test_shared_panels_change_nothing(ctx, world, rng, monkeypatch):
    """Panels read in the writer's memory give the same bits as panels that were sent, however late the readers are."""
    monkeypatch.setattr(_tiled, "LEAST", 0)
    step, delay = WorkQueue.step, np.random.default_rng(world.rank)

    def late(queue):
        time.sleep(5e-4 * delay.random())
        return step(queue)

    monkeypatch.setattr(WorkQueue, "step", late)
    n, nb = 60, 3
    a = random_matrix(rng, (n, n), "d")
    b = random_matrix(rng, (n, FEW + 1), "d")
    spd = a @ a.T + n * np.eye(n)
    for grid in _grids(world.size):
        seen = []
        for share in (True, False):
            monkeypatch.setattr(settings, "share_memory", share)
            x = _scatter(world, _layout((n, n), nb, grid, (0, 0)), a)
            pivots, _ = getrf(x)
            y = _scatter(world, trsm_layout(x.layout, b.shape[1], "N"), b)
            getrs(x, pivots, y, "N")
            z = _scatter(world, _layout((n, n), nb, grid, (0, 0)), spd)
            potrf(z, True)
            w = _scatter(world, _layout((n, n), nb, grid, (0, 0)), spd)
            potrf(w, False)
            seen.append([_gather(v) for v in (x, y, z, w)])
        same = all(np.array_equal(p, q) for p, q in zip(*seen, strict=True))
        all_ranks(ctx, same, f"{grid}")
        all_ranks(ctx, not check(solve(a, seen[0][1], b)), f"{grid}")
