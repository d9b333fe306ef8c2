"""What happens on one rank happens on all: exceptions of local kernels, floating-point errors, warnings, results of no axes."""

import warnings

import numpy as np
import pytest
from _dist import all_raises, all_ranks

import pypto
from pypto.linalg import LinAlgWarning
from pypto.ops.elementwise import BINARY, UNARY

N = 29


def _spread(ctx, at, value, fill=1.0, dtype="d"):
    """Return vectors and matrices, in several layouts, with one element that only some rank holds."""
    x = np.full(N, fill, dtype)
    x[at] = value
    m = np.full((N, 3), fill, dtype)
    m[at, 1] = value
    yield pypto.asarray(x)
    for dist in ("row", pypto.BlockCyclic(2, (ctx.size, 1)), pypto.OnDevice(ctx.size - 1), "replicated"):
        yield pypto.asarray(m, distribution=dist)


CASES = [
    ("divide by zero", "divide", lambda x: 1 / x, 0.0),
    ("divide by zero", "divide", pypto.log, 0.0),
    ("invalid value", "invalid", pypto.sqrt, -1.0),
    ("invalid value", "invalid", lambda x: x - x * np.inf, 0.0),
    ("overflow", "over", pypto.exp, 1e4),
    ("overflow", "over", lambda x: x * x, 1e200),
    ("underflow", "under", lambda x: x * x, 1e-200),
    ("overflow", "over", pypto.prod, 1.7e308),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_floating_point_errors(ctx, case):
    """np.errstate acts on every rank as it does in NumPy, whichever rank holds the element; the world goes on."""
    text, kind, f, value = CASES[case]
    fill = 3.0 if f is pypto.prod else 1.0
    for at in (0, N // 2, N - 1):
        for x in _spread(ctx, at, value, fill):
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("error")
                f(x).compute()
            with np.errstate(**{kind: "raise"}), all_raises(ctx, FloatingPointError, text) as caught:
                f(x).compute()
            all_ranks(ctx, any("while computing" in n for n in caught.value.__notes__))
            with np.errstate(**{kind: "warn"}):
                with pytest.warns(RuntimeWarning, match=text) as seen:
                    f(x).compute()
                all_ranks(ctx, len(seen) == 1 and seen[0].filename == __file__, [str(w) for w in seen])
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    with all_raises(ctx, RuntimeWarning, text):
                        f(x).compute()
            heard = []
            with np.errstate(**{kind: "call"}, call=lambda what, flag, heard=heard: heard.append(what)):
                f(x).compute()
            all_ranks(ctx, len(heard) == 1 and heard[0].startswith(text.split()[0]), heard)
    all_ranks(ctx, float(pypto.ones(N).sum()) == N)


def test_exceptions_of_kernels(ctx):
    """What a kernel raises on one rank is that exception on all, before anything later in the program."""
    for at in (0, N - 1):
        for e in _spread(ctx, at, -2, 1, "i8"):
            for later in (lambda x: x, lambda x: x + 1, pypto.sum, lambda x: pypto.linalg.norm(1.0 * x)):
                with all_raises(ctx, ValueError, "negative integer powers") as caught:
                    later(pypto.asarray(3) ** e).compute()
                all_ranks(ctx, any("'pow'" in n and "test_incidents" in n for n in caught.value.__notes__))
    bad = pypto.asarray(np.full((4, 4), np.nan))
    with all_raises(ctx, ValueError, "negative integer powers"):  # built first
        x = pypto.asarray(np.array([1, 2])) ** pypto.asarray(np.array([-1, 1]))
        pypto.compute(x, pypto.linalg.solve(bad, np.ones(4)))
    with all_raises(ctx, ValueError, "infs or NaNs"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = 1 / pypto.asarray(np.array([0.0, 1.0]))
        pypto.compute(y, pypto.linalg.solve(bad, np.ones(4)))
    all_ranks(ctx, len(seen) == 1)


def test_mistakes_of_attributes_are_found_when_built(ctx):
    """What depends on dtypes and attributes alone is raised without computing."""
    for build, kind in (
        (lambda: pypto.arange(5) ** -1, ValueError),
        (lambda: pypto.round(pypto.asarray([True]), decimals=2), TypeError),
        (lambda: pypto.asarray(np.ones(2, np.uint8)) + 300, OverflowError),
        (lambda: pypto.where(pypto.asarray([True]), pypto.asarray(np.ones(1, np.uint8)), 300), OverflowError),
        (lambda: pypto.full(2, -1, dtype=np.uint8), OverflowError),
    ):
        with all_raises(ctx, kind):
            build()


def test_warnings_of_batches(ctx):
    """Only one rank has the ill-conditioned problem; every rank warns, once, or raises under a filter."""
    for at in range(4):
        a = np.stack([np.eye(3)] * 4)
        a[at] = np.diag([1, 1, 1e-18])
        solve = lambda a=a: pypto.linalg.solve(a, np.ones((4, 3, 1)), assume_a="gen").compute()
        with pytest.warns(LinAlgWarning, match="rcond=1e-18") as seen:
            solve()
        all_ranks(ctx, len(seen) == 1 and seen[0].filename == __file__, [str(w) for w in seen])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with all_raises(ctx, LinAlgWarning, "rcond"):
                solve()
        a[at] = 0
        with all_raises(ctx, np.linalg.LinAlgError, "singular"):
            solve()
    all_ranks(ctx, float(pypto.ones(N).sum()) == N)


def test_a_complex_array_becomes_real(ctx):
    """NumPy's warning, when it is built; on every rank once."""
    with pytest.warns(np.exceptions.ComplexWarning) as seen:
        x = pypto.asarray(np.array([1 + 2j, 3])).astype(float)
    all_ranks(ctx, len(seen) == 1 and seen[0].filename == __file__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        all_ranks(ctx, np.array_equal(np.asarray(x), [1, 3]))


def _read(x, expected):
    """Read a result of no axes in every way."""
    got = np.asarray(x)
    kind = expected.dtype.kind
    fine = type(got) is np.ndarray and got.shape == () and got.dtype == expected.dtype and x.ndim == 0
    fine &= x.item() == expected.item() or expected != expected
    fine &= x.tolist() == expected.tolist() or expected != expected
    fine &= kind == "c" or float(x) == float(expected) or expected != expected
    fine &= kind in "bc" or f"{x:.3g}" == f"{expected.item():.3g}"
    return fine and str(x) == str(expected)


@pytest.mark.parametrize("char", ["?", "i", "d", "D"])
def test_results_without_axes(ctx, char):
    """Operators on scalars give arrays of no axes, as do indexing, products and reductions."""
    a = np.array(2).astype(char)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for x in (pypto.asarray(a), pypto.asarray(np.full(7, a))[4], pypto.full((), a.item(), dtype=char)):
            for name, ufunc in {**UNARY, **BINARY}.items():
                args = (a,) if ufunc.nin == 1 else (a, a)
                try:
                    expected = np.asarray(ufunc(*args))
                except TypeError:
                    continue
                got = getattr(pypto, name)(*[x] * ufunc.nin)
                all_ranks(ctx, _read(got, expected), f"{name} {char}: {np.asarray(got)!r} {expected!r}")
            for made in (x.T, x.reshape((1,))[0], x.astype("d"), pypto.where(x == 2, x, x), x.repartition("replicated"), x.real):
                all_ranks(ctx, type(np.asarray(made)) is np.ndarray and np.asarray(made).shape == (), made)
    v = np.arange(1, 8).astype(char)
    x = pypto.asarray(v)
    for got, expected in (
        (x @ x, v @ v),
        (x.sum(), v.sum()),
        (x.max(), v.max()),
        (x.min(), v.min()),
        (x.any(), v.any()),
        (x.mean(), v.mean()),
        (x.argmax(), v.argmax()),
        (x[2], v[2]),
        (x[-1:][0], v[-1]),
        (pypto.squeeze(x[:1]), v[0]),
    ):
        all_ranks(ctx, _read(got, np.asarray(expected)), f"{char} {got!r} {np.asarray(got)!r} {expected!r}")
    if char in "dD":
        got = pypto.linalg.norm(x)
        all_ranks(ctx, type(np.asarray(got)) is np.ndarray and np.asarray(got).shape == ())


@pytest.mark.parametrize("char", ["F", "D"])
def test_complex_order(ctx, rng, char):
    """max, min, argmax and argmin order by the real part, then by the imaginary one; NaN comes before all."""
    for shape in ((1,), (N,), (7, 5), (3, 4, 5)):
        a = rng.integers(-2, 3, shape) + 1j * rng.integers(-2, 3, shape)
        a = a.astype(char)
        for nan in (False, True):
            if nan:
                a.flat[a.size // 2] = complex(0, np.nan)
            x = pypto.asarray(a)
            for name in ("max", "min", "argmax", "argmin"):
                for axis in (None, *range(a.ndim)):
                    got, expected = np.asarray(getattr(pypto, name)(x, axis=axis)), getattr(np, name)(a, axis=axis)
                    same = np.array_equal(np.isnan(got), np.isnan(expected)) and np.array_equal(
                        got[~np.isnan(got)], np.asarray(expected)[~np.isnan(expected)]
                    )
                    all_ranks(ctx, same and got.dtype == np.asarray(expected).dtype, f"{name} {axis} {shape}: {got} {expected}")


@pytest.mark.nprocs(2, 3, 4)
def test_private_memory_is_said_once(ctx, rng, monkeypatch):
    """Where ranks cannot map each other's memory, the result is the same, and one warning says so."""
    from pypto.linalg import _shared, _tiled

    def refused(nbytes):
        raise OSError("no anonymous files")

    a = pypto.asarray(rng.standard_normal((600, 600)), distribution=pypto.BlockCyclic(64, (1, ctx.size)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = np.asarray(pypto.linalg.lu_factor(a + 0)[0])
    monkeypatch.setattr(_shared, "SharedBlock", refused)
    monkeypatch.setattr(_tiled, "_said", False)
    with pytest.warns(RuntimeWarning, match="cannot map each other's memory") as seen:
        got = [np.asarray(pypto.linalg.lu_factor(a + k)[0]) for k in (0, 1)][0]
    all_ranks(ctx, len(seen) == 1 and np.array_equal(got, expected))


def test_crowded_ranks_take_one_grid_row(ctx):
    """With more ranks than cores matrices lie over a grid of one row, unless a grid is asked for; the same on every rank."""
    from pypto.comm import launch

    crowded = ctx.size > launch.cores()
    all_ranks(ctx, ctx.env.crowded == crowded)
    if crowded:
        all_ranks(ctx, ctx.grid == (1, ctx.size), ctx.grid)
    with pypto.config(grid=(ctx.size, 1)):
        all_ranks(ctx, ctx.grid == (ctx.size, 1), ctx.grid)
