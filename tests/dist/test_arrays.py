"""Array operations: nothing but the distribution changes, and the result is NumPy's."""

import numpy as np
import pytest
from _dist import all_raises, all_ranks, assert_same, distributions, random_matrix
from _ratios import check, product

import pypto

A = np.random.default_rng(1).standard_normal((13, 9))
B = np.random.default_rng(2).standard_normal((13, 9))
C3 = np.random.default_rng(3).integers(-9, 9, (5, 4, 7))

SAME = {
    "identity": lambda xp, a, b: a,
    "add": lambda xp, a, b: a + b,
    "scalar": lambda xp, a, b: 2 * a - b / 3,
    "broadcast row": lambda xp, a, b: a + b[0],
    "broadcast column": lambda xp, a, b: a * b[:, 2:3],
    "transpose": lambda xp, a, b: a.T,
    "where": lambda xp, a, b: xp.where(a > b, a, 0.5),
    "slice": lambda xp, a, b: a[2:11:3, ::-2],
    "negative": lambda xp, a, b: a[::-1, 7:1:-1],
    "integer": lambda xp, a, b: a[4, 1:5],
    "newaxis": lambda xp, a, b: a[..., None, 3],
    "empty": lambda xp, a, b: a[5:5],
    "reshape": lambda xp, a, b: a.reshape(9, 13),
    "reshape 3": lambda xp, a, b: a.reshape(3, 13, 3),
    "ravel": lambda xp, a, b: a.reshape(-1),
    "concat": lambda xp, a, b: xp.concatenate([a, b[:4], a], axis=0),
    "concat 1": lambda xp, a, b: xp.concatenate([a, b[:, :4]], axis=1),
    "stack": lambda xp, a, b: xp.stack([a, b], axis=1),
    "split": lambda xp, a, b: xp.split(a, [3, 8], axis=0)[1],
    "max": lambda xp, a, b: a.max(axis=0),
    "min": lambda xp, a, b: a.min(axis=(0, 1), keepdims=True),
    "argmax": lambda xp, a, b: a.argmax(axis=1),
    "argmin": lambda xp, a, b: a.argmin(),
    "any": lambda xp, a, b: (a > 2).any(axis=1),
    "all": lambda xp, a, b: (a > -2).all(axis=0),
    "count": lambda xp, a, b: xp.count_nonzero(a > 0, axis=0),
    "tril": lambda xp, a, b: xp.tril(a, 1),
    "triu": lambda xp, a, b: xp.triu(a, -2),
    "roll": lambda xp, a, b: xp.roll(a, 4, axis=1),
    "broadcast": lambda xp, a, b: xp.broadcast_to(a[:, :1], (13, 6)),
    "astype": lambda xp, a, b: a.astype(np.float32),
    "swap": lambda xp, a, b: xp.moveaxis(a.reshape(13, 3, 3), 0, 2),
}


@pytest.mark.parametrize("name", SAME)
def test_distribution_changes_nothing(ctx, name):
    """The same expression on every distribution of both operands is NumPy's result, bit for bit."""
    expected = SAME[name](np, A, B)
    for i, first in enumerate(distributions(ctx.size)):
        for second in ("auto", distributions(ctx.size)[-1 - i % 5]):
            got = SAME[name](pypto, pypto.asarray(A, distribution=first), pypto.asarray(B, distribution=second))
            assert_same(ctx, got, expected)


def test_permuted_axes(ctx):
    """Arrays of three axes in every storage order, between all distributions."""
    for axes in ((0, 1, 2), (2, 0, 1), (1, 2, 0), (0, 2, 1)):
        expected = C3.transpose(axes)
        for first in ("auto", "row", "col", "block", pypto.BlockCyclic(2)):
            x = pypto.asarray(C3, distribution=first).transpose(axes)
            for second in ("row", "col", "replicated", pypto.OnDevice(ctx.size - 1)):
                y = x.repartition(second)
                assert_same(ctx, y, expected)
                assert_same(ctx, y[1:, ::-1].sum(axis=1), expected[1:, ::-1].sum(axis=1))
                assert_same(ctx, (y + x).reshape(-1, 7), (expected + expected).reshape(-1, 7))


@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2), (1, 2)])
def test_sums(ctx, axis):
    """Integer sums are exact for every layout, axes and keepdims."""
    for dist in ("auto", "row", "col", "block", "replicated", pypto.OnDevice(0), pypto.BlockCyclic(2)):
        x = pypto.asarray(C3, distribution=dist)
        for keepdims in (False, True):
            assert_same(ctx, x.sum(axis=axis, keepdims=keepdims), C3.sum(axis=axis, keepdims=keepdims))
            assert_same(ctx, x.max(axis=axis, keepdims=keepdims), C3.max(axis=axis, keepdims=keepdims))
    y = pypto.asarray(A)
    assert_same(ctx, y.mean(axis=0), A.mean(axis=0), 8)
    assert_same(ctx, y.std(axis=1), A.std(axis=1), 8)


def test_nan_propagates(ctx):
    """A NaN on one rank is the maximum everywhere."""
    a = A.copy()
    a[11, 8] = np.nan
    for dist in ("row", "col", "auto"):
        x = pypto.asarray(a, distribution=dist)
        assert_same(ctx, x.max(), a.max())
        assert_same(ctx, x.min(axis=0), a.min(axis=0))
        assert_same(ctx, x.argmax(), a.argmax())


@pytest.mark.parametrize("char", ["f", "d", "F", "D", "q"])
def test_matmul(ctx, rng, char):
    """Products in all layouts, with transposed and conjugated operands, to the elementwise bound."""
    dists = distributions(ctx.size, nbs=(2, 5))
    for k, (m, n, inner) in enumerate([(11, 7, 13), (1, 9, 30), (40, 3, 5), (6, 6, 0), (0, 4, 3), (33, 35, 37)]):
        kind = "d" if char == "q" else char
        a, b = random_matrix(rng, (m, inner), kind), random_matrix(rng, (inner, n), kind)
        if char == "q":
            a, b = (10 * a).astype("q"), (10 * b).astype("q")
        for i, first in enumerate(dists):
            second = dists[(i * 5 + k) % len(dists)]
            x, y = pypto.asarray(a, distribution=first), pypto.asarray(b, distribution=second)
            xt = pypto.asarray(a.T.copy(), distribution=second)
            yh = pypto.asarray(b.conj().T.copy(), distribution=first)
            for got in (x @ y, xt.T @ y, x @ yh.conj().T, xt.T @ yh.T.conj()):
                c = np.asarray(got)
                bad = check(product(a, b, c)) if char != "q" else {} if np.array_equal(c, a @ b) else {"exact": 1}
                all_ranks(ctx, c.shape == (m, n) and not bad, f"{char} {m}x{inner}x{n} {first} {second}: {bad}")


@pytest.mark.parametrize("variant", ["C", "A", "B", "K"])
def test_matmul_variants(ctx, world, rng, variant):
    """Every variant computes every shape in every layout."""
    from pypto.linalg._matmul import gemm, result_layout

    for dist in distributions(ctx.size, nbs=(2, 5)):
        a, b = random_matrix(rng, (12, 17), "d"), random_matrix(rng, (17, 10), "d")
        x, y = pypto.asarray(a, distribution=dist), pypto.asarray(b)
        out = gemm(x._node.value, y._node.value, result_layout(x.layout, y.layout), variant=variant)
        whole = ctx.engine.gather(out)
        bad = check(product(a, b, whole))
        all_ranks(ctx, not bad, f"{variant} {dist}: {bad}")


def test_batched_matmul(ctx, rng):
    """Batches broadcast like NumPy's."""
    a, b = rng.integers(0, 9, (3, 1, 4, 5)), rng.integers(0, 9, (6, 5, 2))
    assert_same(ctx, pypto.asarray(a) @ b, a @ b)
    assert_same(ctx, pypto.asarray(a) @ b[0, :, 0], a @ b[0, :, 0])


def test_creation(ctx):
    """Creation functions give NumPy's values on every layout."""
    for dist in ("auto", "row", pypto.OnDevice(0), "replicated"):
        assert_same(ctx, pypto.arange(3, 40, 5, distribution=dist), np.arange(3, 40, 5))
        assert_same(ctx, pypto.arange(0.5, 7.25, 0.75, distribution=dist), np.arange(0.5, 7.25, 0.75))
        assert_same(ctx, pypto.linspace(-1, 2, 11, distribution=dist), np.linspace(-1, 2, 11))
        assert_same(ctx, pypto.eye(7, 5, k=-1, distribution=dist), np.eye(7, 5, k=-1))
        assert_same(ctx, pypto.full((3, 4), 2.5, distribution=dist), np.full((3, 4), 2.5))
        made = pypto.from_function(lambda i, j: 10 * i + j, (9, 4), np.int64, distribution=dist)
        assert_same(ctx, made, np.fromfunction(lambda i, j: 10 * i + j, (9, 4), dtype=np.int64))


def test_from_local(ctx, world):
    """Parts that the ranks bring make up the array; a wrong part is everybody's error."""
    layout = ctx.env.layout((10, 3), "row")
    whole = np.arange(30.0).reshape(10, 3)
    part = whole[layout.indices(0, ctx.rank)]
    assert_same(ctx, pypto.from_local(part, (10, 3), "row"), whole)
    wrong = part[:0] if ctx.rank == 0 else part
    with all_raises(ctx, ValueError, "brings a part of shape"):
        pypto.from_local(wrong, (10, 3), "row")


def test_callback_failure(ctx):
    """A user's function that raises on one rank raises on all, with the user's line; the context lives on."""

    def f(i, j):
        if i.max() == 7:
            raise KeyError("the last block")
        return i + j

    x = pypto.from_function(f, (8, 2), distribution="row")
    with all_raises(ctx, KeyError, "the last block") as caught:
        x.compute()
    notes = " ".join(caught.value.__notes__)
    named = "from_function" in notes and "test_arrays.py" in notes
    all_ranks(ctx, named and (ctx.size == 1 or "raised on rank" in notes), notes)
    assert_same(ctx, pypto.ones(3) + 1, np.full(3, 2.0))


@pytest.mark.nprocs(2, 4)
def test_divergence(ctx):
    """Ranks that build different programs learn it instead of waiting for ever."""
    x = pypto.ones(8)
    y = x + 1 if ctx.rank == 0 else x * 2
    with pytest.raises(pypto.DivergenceError, match="different computations"):
        y.compute()
    other = pypto.asarray(np.full(8, float(ctx.rank)))
    with pytest.raises(pypto.DivergenceError):
        (other + 1).compute()
    assert_same(ctx, (pypto.ones(8) + 1), np.full(8, 2.0))


@pytest.mark.nprocs(2, 3)
def test_counts_and_splitting(ctx, world, rng):
    """Redistribution sends at most one message per pair, counted; messages above the limit are split below it."""
    from pypto.tiles.redistribute import plan, redistribute

    a = rng.standard_normal((60, 40))
    x = pypto.asarray(a, distribution="row").compute()
    want = ctx.env.layout((60, 40), pypto.BlockCyclic(7))
    p = plan(x.layout, want, ctx.rank)
    with world.comm.counter.count() as counted:
        out = redistribute(x._node.value, want)
    fine = counted.messages == p.messages <= ctx.size - 1 and counted.bytes == 8 * p.elements
    with pypto.config(max_message=1000), world.comm.counter.count() as split:
        out = redistribute(x._node.value, want)
        total = np.full(500, 1.0)
        world.comm.allreduce(total)
        world.comm.bcast(total, 0)
        rows = world.comm.allgather(total)
    all_ranks(ctx, fine and split.messages > counted.messages, f"{counted.messages} {p.messages} {split.messages}")
    all_ranks(ctx, np.array_equal(out.local, a[np.ix_(*(want.indices(k, ctx.rank) for k in (0, 1)))]))
    all_ranks(ctx, rows.shape == (ctx.size, 500) and (rows == ctx.size).all())


def test_memory_limit(ctx):
    """A plan that does not fit is refused before anything runs, naming the operation and the bytes."""
    text = "needs .* bytes per device where memory_limit is 1,000,000"
    with pypto.config(memory_limit="1MB"), all_raises(ctx, pypto.MemoryLimitError, text):
        (pypto.ones((3000, 3000)) + 1).compute()
    assert_same(ctx, pypto.ones(3) + 1, np.full(3, 2.0))
