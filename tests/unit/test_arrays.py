"""The lazy array on one device: inference, sharing, errors, NumPy's rules."""

import gc
import warnings

import numpy as np
import pytest
from _ratios import check, solve

import pypto
from pypto.dtypes import SUPPORTED
from pypto.graph.graph import cut
from pypto.ops.elementwise import BINARY, UNARY
from pypto.ops.opdef import table


@pytest.fixture(autouse=True)
def ctx():
    """One device."""
    with pypto.init() as context:
        yield context


def _sample(dtype):
    if dtype.kind == "b":
        return np.array([True, False, True])
    values = np.array([1, 2, 3])
    return values.astype(dtype) if dtype.kind != "f" else (values / 4).astype(dtype)


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_inference_never_lies(name):
    """For every dtype: NumPy's values and dtype, announced before computing; or NumPy's TypeError."""
    for dtype in SUPPORTED:
        x = _sample(dtype)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                expected = UNARY[name](x)
            except TypeError:
                with pytest.raises(TypeError):
                    getattr(pypto, name)(pypto.asarray(x))
                continue
            lazy = getattr(pypto, name)(pypto.asarray(x))
            announced = lazy.shape, lazy.dtype
            got = np.asarray(lazy)
        assert announced == (got.shape, got.dtype) == (expected.shape, expected.dtype), (name, dtype)
        assert np.array_equal(got, expected, equal_nan=got.dtype.kind in "fc"), (name, dtype)


@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary_inference_never_lies(name):
    """For every pair of dtypes, and for Python scalars on either side."""
    ufunc = BINARY[name]
    for first in SUPPORTED:
        x = _sample(first)
        others = [_sample(second) for second in SUPPORTED] + [2, True, 0.5, 1j]
        for y in others:
            for args in ((x, y), (y, x)):
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    try:
                        expected = ufunc(*args)
                        if expected.dtype not in SUPPORTED:
                            continue
                    except (TypeError, ValueError, OverflowError):
                        with pytest.raises((TypeError, ValueError, OverflowError)):
                            np.asarray(getattr(pypto, name)(*(pypto.asarray(v) if v is x else v for v in args)))
                        continue
                    lazy = getattr(pypto, name)(*(pypto.asarray(v) if isinstance(v, np.ndarray) else v for v in args))
                    announced = lazy.shape, lazy.dtype
                    got = np.asarray(lazy)
                assert announced == (got.shape, got.dtype) == (expected.shape, expected.dtype), (name, args)
                assert np.array_equal(got, expected, equal_nan=got.dtype.kind in "fc"), (name, args)


SCALARS = [-1, 0, 3, 300, 2**31, 2**40, 2**63, 2**64, -(2**63), -(2**63) - 1, True, 1.5, 1e300, float("inf"), float("nan"), 1j]


def _outcome(f):
    """Return what a call gives, or the class of what it raises."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return np.asarray(f())
        except (TypeError, ValueError, OverflowError) as error:
            return type(error)


@pytest.mark.parametrize("dtype", SUPPORTED, ids=str)
def test_python_scalars(dtype):
    """Every function that takes a scalar does with it what NumPy does, beyond the range of the dtype too."""
    x, keep = np.array([0, 1, 2]).astype(dtype), np.array([True, False, True])
    a, k = pypto.asarray(x), pypto.asarray(keep)
    for v in SCALARS:
        pairs = {f"{n} x.v": (lambda u=u: u(x, v), lambda n=n: getattr(pypto, n)(a, v)) for n, u in BINARY.items()}
        pairs |= {f"{n} v.x": (lambda u=u: u(v, x), lambda n=n: getattr(pypto, n)(v, a)) for n, u in BINARY.items()}
        pairs |= {
            "asarray": (lambda: np.asarray(v, dtype), lambda: pypto.asarray(v, dtype=dtype)),
        }
        if (
            np.lib.NumpyVersion(np.__version__) >= "2.1.0"
        ):  # before, clip and full treated what is beyond the dtype's range otherwise
            pairs["full"] = (lambda: np.full(2, v, dtype), lambda: pypto.full(2, v, dtype=dtype))
            pairs["full_like"] = (lambda: np.full_like(x, v), lambda: pypto.full_like(a, v))
            pairs["clip"] = (lambda: np.clip(x, v, 3), lambda: pypto.clip(a, v, 3))
            pairs["clip below"] = (lambda: np.clip(x, v, None), lambda: pypto.clip(a, v, None))
            pairs["clip above"] = (lambda: np.clip(x, None, v), lambda: pypto.clip(a, None, v))
        if v != v or abs(v) <= 1e3:  # NumPy finds what overflows in the dtype of x close to everything
            pairs["isclose"] = (lambda: np.isclose(x, v), lambda: pypto.isclose(a, v))
        fits = type(v) is not int or dtype.kind not in "biu" or np.can_cast(np.min_scalar_type(v), np.int64)
        if fits and (type(v) is not int or dtype.kind not in "iu" or np.iinfo(dtype).min <= v <= np.iinfo(dtype).max):
            pairs["where"] = (lambda: np.where(keep, x, v), lambda: pypto.where(k, a, v))
        for name, (theirs, mine) in pairs.items():
            expected, got = _outcome(theirs), _outcome(mine)
            if isinstance(expected, type) or isinstance(got, type):
                assert isinstance(expected, type) == isinstance(got, type), (name, v, expected, got)
                assert issubclass(got, expected) or issubclass(expected, got), (name, v, expected, got)
            else:
                assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (name, v, expected, got)
                assert np.array_equal(got, expected, equal_nan=got.dtype.kind in "fc"), (name, v, expected, got)
    for decimals in (-1, 0, 2):
        expected, got = _outcome(lambda d=decimals: np.round(x, d)), _outcome(lambda d=decimals: pypto.round(a, decimals=d))
        assert isinstance(got, type) == isinstance(expected, type), (decimals, got, expected)
        assert isinstance(got, type) or (got.dtype == expected.dtype and np.array_equal(got, expected))


def test_operators():
    """Python's operators, reflected too, with arrays, NumPy arrays and scalars."""
    a, b = np.array([5, 7, -3]), np.array([2, 3, 4])
    x = pypto.asarray(a)
    for f in (
        lambda p, q: p + q,
        lambda p, q: p - q,
        lambda p, q: p * q,
        lambda p, q: p / q,
        lambda p, q: p // q,
        lambda p, q: p % q,
        lambda p, q: p**q,
        lambda p, q: p & q,
        lambda p, q: p | q,
        lambda p, q: p ^ q,
        lambda p, q: p << q,
        lambda p, q: p >> q,
        lambda p, q: p < q,
        lambda p, q: p >= q,
        lambda p, q: p == q,
        lambda p, q: p != q,
    ):
        for got, expected in ((f(x, b), f(a, b)), (f(x, pypto.asarray(b)), f(a, b)), (f(x, 2), f(a, 2))):
            assert np.array_equal(np.asarray(got), expected)
            assert got.dtype == expected.dtype
    assert np.array_equal(np.asarray(b - x), b - a)
    assert np.array_equal(np.asarray(2 - x), 2 - a)
    assert np.array_equal(np.asarray(np.float64(2) * x), 2.0 * a)
    assert np.array_equal(np.asarray(np.add(b, x)), a + b)
    assert np.array_equal(np.asarray(-x), -a)
    assert np.array_equal(np.asarray(abs(x)), abs(a))
    assert np.array_equal(np.asarray(~x), ~a)
    y = x
    y += 1
    assert np.array_equal(np.asarray(x), a)
    assert np.array_equal(np.asarray(y), a + 1)
    assert (pypto.sqrt(64), type(pypto.sqrt(64))) == (8.0, float)
    assert (x.astype(np.float32) / pypto.sqrt(64)).dtype == np.float32


def test_equal_expressions_are_computed_once():
    """Programs hold each value once; 0.0 and -0.0, 1 and 1.0 are different."""
    x = pypto.asarray(np.arange(4.0)).compute()
    program, _, _ = cut([((x + 1) * (x + 1))._node], fingerprint=False)
    assert [i.op.name for i in program.instrs] == ["add", "multiply"]
    assert np.signbit(np.asarray(pypto.full(1, 0.0) + x[:1] * -0.0 * 1)).tolist() == [False]
    program, _, _ = cut([(x * 0.0)._node, (x * -0.0)._node, (x + 1)._node, (x + 1.0)._node], fingerprint=False)
    assert len(program.instrs) == 4
    with_unused = x * 3
    program, _, _ = cut([(x + 2)._node], fingerprint=False)
    assert len(program.instrs) == 1
    assert with_unused.shape == (4,)


def test_fingerprints_do_not_depend_on_the_process():
    """Equal programs have equal fingerprints, whatever was built before."""
    first = cut([(pypto.ones(3) + 1)._node], fingerprint=True)[0].fingerprint
    _ = pypto.ones(7) * 2
    second = cut([(pypto.ones(3) + 1)._node], fingerprint=True)[0].fingerprint
    other = cut([(pypto.ones(3) + 2)._node], fingerprint=True)[0].fingerprint
    assert first == second != other


def test_memory_of_intermediates_is_freed():
    """A chain keeps its last value only; a computed array lets go of what it was made from."""
    import weakref

    x = pypto.asarray(np.ones(1000)).compute()
    middle = x + 1
    watch = weakref.ref(middle._node)
    y = (middle * 2).compute()
    del middle
    gc.collect()
    assert watch() is None
    assert y._node.inputs == ()


def test_long_chains():
    """Ten thousand lazy operations run without recursion; the number that wait is bounded."""
    x = pypto.zeros(3)
    for _ in range(10_000):
        x = x + 1
    assert np.asarray(x).tolist() == [10_000] * 3
    with pypto.config(max_pending=50):
        y = pypto.zeros(2)
        for _ in range(120):
            y = y + 1
        assert len(cut([y._node], fingerprint=False)[0].instrs) < 50
        assert np.asarray(y).tolist() == [120, 120]


def test_captured_values():
    """Later changes of the NumPy array do not show; awkward memory is fine; results are new."""
    base = np.arange(12.0).reshape(3, 4)
    x = pypto.asarray(base)
    base[...] = 0
    assert float(x[2, 3]) == 11
    for view in (base.T, base[::-1, ::2], np.asfortranarray(base), base[:, :1], np.float64(3), np.zeros((0, 5))):
        frozen = np.array(view)
        assert np.array_equal(np.asarray(pypto.asarray(view)), frozen)
    out = np.asarray(x)
    out[...] = -1
    assert float(x[2, 3]) == 11
    assert not x.local.flags.writeable


@pytest.mark.parametrize("bad", [np.array(["a"]), np.array([object()]), np.array([1], "M8[s]"), [[1], [2, 3]]])
def test_dtypes_that_hold_no_numbers(bad):
    """Object, text and time dtypes are refused, naming what is allowed."""
    with pytest.raises((TypeError, ValueError)):
        pypto.asarray(bad)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: pypto.ones(3) + pypto.ones(4), ValueError),
        (lambda: pypto.ones((2, 3)) @ pypto.ones((2, 3)), ValueError),
        (lambda: pypto.ones(3) @ 2.0, TypeError),
        (lambda: pypto.ones((2, 3)).reshape(7), ValueError),
        (lambda: pypto.ones(6).reshape(-1, -1), ValueError),
        (lambda: pypto.concat([pypto.ones((2, 3)), pypto.ones((3, 2))]), ValueError),
        (lambda: pypto.stack([pypto.ones(2), pypto.ones(3)]), ValueError),
        (lambda: pypto.split(pypto.ones(7), 2), ValueError),
        (lambda: pypto.ones(3)[3], IndexError),
        (lambda: pypto.ones(3)[0, 0], IndexError),
        (lambda: pypto.ones(3)[[0, 1]], TypeError),
        (lambda: pypto.ones(3).sum(axis=1), np.exceptions.AxisError),
        (lambda: pypto.zeros((0, 3)).max(axis=0), ValueError),
        (lambda: pypto.arange(3) ** -1, ValueError),
        (lambda: pypto.ones(3).repartition("diagonal"), ValueError),
        (lambda: pypto.zeros(3, distribution=pypto.OnDevice(5)), ValueError),
        (lambda: pypto.zeros((-1, 2)), ValueError),
        (lambda: pypto.linalg.solve(pypto.ones((2, 3)), pypto.ones(2)), ValueError),
        (lambda: pypto.linalg.solve(pypto.ones((2, 2)), pypto.ones(3)), ValueError),
        (lambda: pypto.linalg.solve(pypto.ones((2, 2)), pypto.ones(2), assume_a="lucky"), ValueError),
        (lambda: pypto.linalg.lu_solve((pypto.eye(2), [0, 1]), pypto.ones(2), trans=3), ValueError),
        (lambda: pypto.from_function(7, (2, 2)), TypeError),
        (lambda: pypto.config(colour="red"), ValueError),
        (lambda: bool(pypto.ones(2)), ValueError),
        (lambda: float(pypto.ones(2)), ValueError),
        (lambda: pypto.asarray(np.ones(2), copy=False), ValueError),
        (lambda: pypto.compute(3), TypeError),
    ],
)
def test_mistakes_are_found_when_they_are_made(make, kind):
    """Bad arguments raise at the call, not when something is computed."""
    with pytest.raises(kind):
        make()
    assert float(pypto.ones(3).sum()) == 3


def test_eager():
    """In eager mode each operation has its value at once, and errors come where the call is."""
    with pypto.config(eager=True):
        x = pypto.ones(3) + 1
        assert x._node.value is not None
        with pytest.raises(np.linalg.LinAlgError):
            pypto.linalg.solve(np.zeros((2, 2)), np.ones(2))
    assert (pypto.ones(3) + 1)._node.value is None


def test_closed_context():
    """Arrays of a context that has ended say so."""
    x = pypto.ones(3)
    pypto.finalize()
    with pytest.raises(pypto.ContextError, match="closed"):
        x.compute()
    with pytest.raises(pypto.ContextError, match="contexts"):
        _ = x + pypto.ones(3)


def test_notes_name_the_line():
    """An error found while computing names the operation and the user's line."""
    x = pypto.linalg.solve(np.zeros((3, 3)), np.ones(3))
    with pytest.raises(np.linalg.LinAlgError) as caught:
        x.compute()
    assert any("'solve'" in note and "test_arrays.py" in note for note in caught.value.__notes__)


def test_explain():
    """The plan lists layouts, flops and memory, and runs nothing."""
    a = pypto.ones((100, 100))
    plan = pypto.explain(a @ a + 1)
    assert [r[0] for r in plan.rows] == ["full", "matmul", "add"]
    assert plan.rows[1][5] == "2e+06"
    assert plan.peak_bytes >= 2 * 80_000
    assert a._node.value is None
    assert "matmul" in str(plan)


def test_table_is_complete():
    """Every row can say shapes, layouts and flops."""
    for name, op in table.items():
        assert op.name == name
        assert op.family
        assert callable(op.infer)
        assert callable(op.place)
        assert callable(op.run) or name == "leaf"


def test_representations():
    """`repr` computes nothing; `str` prints the values."""
    x = pypto.ones((2, 2)) + 1
    assert "lazy add" in repr(x)
    assert x._node.value is None
    assert str(x) == str(np.full((2, 2), 2.0))
    assert f"{pypto.ones(1)[0]:.1f}" == "1.0"
    assert len(pypto.ones((4, 2))) == 4
    assert [float(v) for v in pypto.arange(3)] == [0, 1, 2]


def test_debug_mode_verifies_programs():
    """A program whose announced shape or order of slots is wrong is caught before it runs."""
    from pypto.plan.schedule import verify

    program, _, _ = cut([(pypto.ones((3, 3)) @ pypto.ones((3, 3)) + 1)._node], fingerprint=False)
    verify(program)
    program.instrs[1].shape = (4, 4)
    with pytest.raises(RuntimeError, match="announced"):
        verify(program)
    with pypto.config(debug=True):
        lu, piv = pypto.linalg.lu_factor(pypto.eye(3))
        assert np.asarray(pypto.linalg.lu_solve((lu, piv), pypto.ones(3))).tolist() == [1, 1, 1]


def test_settings_take_effect():
    """Settings changed for a block of code are those of the arrays made in it, and are restored."""
    before = pypto.config()
    with pypto.config(chunk_size=7, num_workers=1):
        assert np.asarray(pypto.ones((20, 20)) @ pypto.ones((20, 20)))[0, 0] == 20
    with pytest.raises(ValueError, match="1 to 10000"):
        pypto.config(chunk_size=0)
    assert before is not None


def test_solve_on_one_device():
    """General, structured, singular and ill-conditioned systems: SciPy's answers, exceptions and warnings."""

    rng = np.random.default_rng(3)
    a = rng.standard_normal((30, 30))
    for m in (a, np.tril(a), np.triu(a), np.diag(np.diag(a)), a + a.T, a @ a.T + np.eye(30), a[:1, :1], a[:0, :0]):
        b = np.ones((len(m), 2))
        x = np.asarray(pypto.linalg.solve(m, b))
        assert x.shape == b.shape
        assert not check(solve(m, x, b))
    for dtype in "fdFD":
        m = (a + (1j * a.T if dtype in "FD" else 0)).astype(dtype)
        assert pypto.linalg.solve(m, np.ones(30, dtype)).dtype == np.asarray(pypto.linalg.solve(m, np.ones(30, dtype))).dtype
    a[:, 3] = 0
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        pypto.linalg.solve(a, np.ones(30)).compute()
    hilbert = 1 / (np.arange(15)[:, None] + np.arange(15) + 1.0) + np.triu(np.full((15, 15), 1e-17), 1)
    hilbert[0, 1] += 1e-12
    with pytest.warns(pypto.linalg.LinAlgWarning, match="Ill-conditioned"):
        pypto.linalg.solve(hilbert, np.ones(15), assume_a="gen").compute()
