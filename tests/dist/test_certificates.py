"""What is promised of results: refined solutions and their certificates, verification, warnings, gathers that are said."""

import warnings

import numpy as np
import pytest
from _dist import all_raises, all_ranks, random_matrix
from _ratios import check, solve

import pypto
from pypto.layout.grid import factorings
from pypto.linalg import _common


def _with_condition(rng, n, char, condition):
    """Return a matrix whose singular values fall geometrically from 1 to 1/condition."""
    u, v = (np.linalg.qr(random_matrix(rng, (n, n), char))[0] for _ in range(2))
    return (u * np.geomspace(1, 1 / condition, n)) @ v


def _array(a, ctx, nb=16):
    return pypto.asarray(a, distribution=pypto.BlockCyclic(nb, factorings(ctx.size)[-1]))


def _backward_error(a, x, b):
    r = np.abs(b - a.astype(np.result_type(a, np.longdouble)) @ x).max(0)
    return float((r / (np.abs(a).sum(1).max() * np.abs(x).max(0) + np.abs(b).max(0))).max())


@pytest.mark.parametrize("char", ["d", "D"])
@pytest.mark.parametrize(("condition", "scale"), [(1e2, 1.0), (1e4, 1e200), (1e4, 1e-200), (1e9, 1.0), (1e15, 1.0)])
def test_refined_solutions_reach_double_precision(ctx, rng, char, condition, scale):
    """Whatever the condition and the range, the answer is as good as that of the plain route, and the certificate says so."""
    n = 96
    a = _with_condition(rng, n, char, condition) * scale
    b = random_matrix(rng, (n, 2), char)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x, info = pypto.linalg.refine(_array(a, ctx), b)
        got = np.asarray(x)
    bad = check(solve(a, got, b))
    claimed, measured = float(info.backward_error), _backward_error(a, got, b)
    small = 16 * np.finfo("d").eps
    fine = not bad and claimed <= small and measured <= small and claimed >= measured / 8
    if condition <= 1e4:
        fine &= info.route == "single + refinement" and 1 <= int(info.steps) <= 8
    elif condition >= 1e15:
        fine &= info.route == "double after single" and 0 < float(info.rcond) < 1e-12
    all_ranks(ctx, fine, f"{char} {condition:g} {scale:g}: {info.route} {claimed:g} {measured:g} {bad}")


@pytest.mark.parametrize("char", ["f", "d", "F", "D"])
def test_refined_positive_definite_and_structured(ctx, rng, char):
    """Positive definite, triangular and diagonal systems have certificates too; single precision is solved as it is."""
    n = 40
    g = random_matrix(rng, (n, n), char)
    positive = (g @ g.conj().T + n * np.eye(n)).astype(char)
    b = random_matrix(rng, (n,), char)
    for a, kind in ((positive, "pos"), (positive, None), (np.tril(positive), None), (np.diag(np.diag(positive)), None)):
        x, info = pypto.linalg.refine(_array(a, ctx), b, assume_a=kind, lower=True)
        bad = check(solve(a, np.asarray(x)[:, np.newaxis], b[:, np.newaxis]))
        low = info.route.startswith("single") == (char in "dD" and a is positive)
        fine = not bad and low and float(info.backward_error) <= 16 * np.finfo(char).eps
        all_ranks(ctx, fine, f"{char} {kind}: {info.route} {float(info.backward_error):g} {bad}")


def test_singular_systems_are_refused(ctx, rng):
    """A matrix that is singular in single precision is tried in double; one that is singular there too is an error."""
    a = np.eye(20)
    a[3, 3] = 1e-60
    x, info = pypto.linalg.refine(_array(a + np.triu(np.ones((20, 20)), 1), ctx), np.ones(20))
    all_ranks(ctx, float(info.backward_error) < 1e-14, info.route)
    b = random_matrix(rng, (20, 20), "d")
    b[:, 5] = 0
    with all_raises(ctx, np.linalg.LinAlgError):
        pypto.linalg.refine(_array(b, ctx), np.ones(20))[0].compute()


@pytest.mark.nprocs(1, 2, 4)
def test_mixed_precision_is_a_setting(ctx, rng):
    """A large system takes the short way, and the long one when told to; both answers pass HPL's test."""
    n = 1100
    a, b = random_matrix(rng, (n, n), "d"), random_matrix(rng, (n,), "d")
    x = _array(a, ctx, 64)
    for mixed in (True, False):
        with pypto.config(mixed_precision=mixed):
            y = pypto.linalg.solve(x, b)
            plan = str(pypto.explain(y))
            got = np.asarray(y)
        bad = check(solve(a, got[:, np.newaxis], b[:, np.newaxis]))
        all_ranks(ctx, not bad and ("refined_solve" in plan) == mixed, f"{mixed}: {plan} {bad}")


def test_ill_conditioned_systems_warn(ctx, rng):
    """One warning with the estimate, within a factor of ten of the condition; none where the system is fine."""
    n = 30
    for char in "fdFD":
        eps = np.finfo(char).eps
        for condition, told in ((1 / eps / 1e3, False), (100 / eps, True)):
            a = _with_condition(rng, n, "D" if char in "FD" else "d", condition).astype(char)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                pypto.linalg.solve(_array(a, ctx), np.ones(n, char)).compute()
            texts = [str(w.message) for w in caught if issubclass(w.category, pypto.linalg.LinAlgWarning)]
            all_ranks(ctx, len(texts) == int(told) and all("rcond=" in t for t in texts), f"{char} {condition:g}: {texts}")


@pytest.mark.nprocs(2, 3, 4)
def test_gathers_are_said(ctx, rng, monkeypatch):
    """Collecting a large reduced problem on one device is a warning, and under strict an error before anything runs."""
    monkeypatch.setattr(_common, "LARGE", 10)
    a = random_matrix(rng, (30, 20), "d")
    with pytest.warns(pypto.GatherWarning, match="collects"):
        pypto.linalg.pinv(_array(a, ctx))
    with pypto.config(strict=True), all_raises(ctx, pypto.GatherError, "strict"):
        pypto.linalg.pinv(_array(a, ctx))


def _verified(x, b):
    """Return one array of every operation that can be verified."""
    lu, _ = pypto.linalg.lu_factor(x, verify=True)
    positive = x @ x.mT.conj() + pypto.eye(x.shape[0], dtype=x.dtype)
    return (
        lu,
        pypto.linalg.cholesky(positive, lower=True, verify=True),
        pypto.linalg.qr(x, mode="economic", verify=True)[1],
        pypto.linalg.solve(x, b, verify=True),
    )


@pytest.mark.parametrize("char", ["f", "D"])
def test_verification_has_no_false_alarms(ctx, rng, char):
    """Random matrices, graded and badly scaled ones among them, pass."""
    for n in (1, 2, 7, 24):
        for k in range(4):
            a = random_matrix(rng, (n, n), char)
            if k == 1:
                a *= np.geomspace(1, 1e-5, n)[:, np.newaxis].astype(char)
            elif k == 2:
                a *= np.geomspace(1e-5, 1, n).astype(char)
            elif k == 3:
                a *= np.dtype(char).type(1e-12)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for made in _verified(_array(a, ctx, 5), random_matrix(rng, (n, 2), char)):
                    made.compute()
    all_ranks(ctx, True)


@pytest.mark.nprocs(2, 3, 4, 6)
@pytest.mark.parametrize("which", range(4))
def test_verification_sees_a_flipped_bit(ctx, rng, monkeypatch, which):
    """An exponent bit of one element that changes during an update on one rank is an error on every rank."""
    device = ctx.engine.world.device
    usual = type(device).gemm
    armed = [ctx.rank == 0]

    def gemm(alpha, a, b, beta, c, *trans):
        usual(alpha, a, b, beta, c, *trans)
        if armed[0] and alpha == -1 and c.size and c[-1, 0] != 0:
            c[-1, 0] = (np.float64(c[-1, 0]).view(np.int64) ^ np.int64(1 << 53)).view(np.float64)
            armed[0] = False

    a, b = random_matrix(rng, (60, 60), "d"), random_matrix(rng, (60, 3), "d")
    x = _array(a, ctx, 8)
    made = _verified(x, b)[which]
    monkeypatch.setattr(type(device), "gemm", staticmethod(gemm))
    try:
        with pypto.config(mixed_precision=False), all_raises(ctx, pypto.VerificationError, "does not belong"):
            made.compute()
    finally:
        monkeypatch.undo()
