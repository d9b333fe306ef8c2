"""Layouts against a brute-force oracle that deals tiles one at a time, for every rank of every grid."""

import itertools
import pickle

import numpy as np
import pytest

import pypto
from pypto.distribution import default_nb, describe, resolve
from pypto.grid import ProcessGrid, factorings, squarest
from pypto.layout import Cyclic, Layout, numroc


def deal(n, nb, src, p):
    """Deal tiles of nb indices to p hands, one at a time."""
    hands = [[] for _ in range(p)]
    for tile, begin in enumerate(range(0, n, nb)):
        hands[(src + tile) % p] += range(begin, min(begin + nb, n))
    return hands


def owned(layout, rank):
    """Return the set of elements a rank holds, by the oracle, with the partial coordinates."""
    coords = layout.grid.coords(rank)
    if coords is None:
        return None
    parts = []
    for n, d in zip(layout.shape, layout.dims, strict=True):
        parts.append(list(range(n)) if d is None else deal(n, d.nb, d.src, layout.grid.shape[d.axis])[coords[d.axis]])
    return parts


@pytest.mark.parametrize("p", range(1, 10))
def test_one_axis(p):
    """Every n, nb and src: counts, indices and both maps agree with the oracle."""
    grid = ProcessGrid.of((p,))
    for n in range(18):
        for nb in range(1, n + 2):
            for src in range(p):
                hands = deal(n, nb, src, p)
                layout = Layout((n,), grid, (Cyclic(0, nb, src),))
                for c in range(p):
                    assert numroc(n, nb, c, src, p) == len(hands[c]) == layout.local_shape(c)[0]
                    mine = layout.indices(0, c)
                    assert mine.dtype == np.int64
                    assert mine.tolist() == hands[c]
                    il = np.arange(len(hands[c]), dtype=np.int64)
                    assert layout.to_global(0, c, il).tolist() == hands[c]
                    coord, back = layout.to_local(0, mine)
                    assert (coord == c).all()
                    assert back.tolist() == il.tolist()
                assert layout.max_local_size() == max(map(len, hands))


def _random_layout(rng, size, shape=None):
    ndim = int(rng.integers(1, 4)) if shape is None else len(shape)
    shape = shape or tuple(int(n) for n in rng.integers(0, 12, ndim))
    ranks = tuple(int(r) for r in rng.permutation(size)[: int(rng.integers(1, size + 1))])
    p, q = factorings(len(ranks))[int(rng.integers(len(factorings(len(ranks)))))]
    grid = ProcessGrid.of((p, q), ranks)
    dims = [None] * ndim
    for axis in range(2):
        a = int(rng.integers(0, ndim + 1))
        if a < ndim and dims[a] is None:
            dims[a] = Cyclic(axis, int(rng.integers(1, 8)), int(rng.integers(0, grid.shape[axis])))
    order = tuple(int(a) for a in rng.permutation(ndim))
    return Layout(shape, grid, tuple(dims), (), order)


def test_equality_is_ownership():
    """Layouts are equal exactly when every rank holds the same elements in the same memory order."""
    rng = np.random.default_rng(5)
    equal = 0
    for _ in range(4000):
        shape = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(1, 3))))
        a, b = _random_layout(rng, 3, shape), _random_layout(rng, 3, shape)
        same = all(owned(a, r) == owned(b, r) for r in range(3))
        order = [x for x in a.order if shape[x] > 1] == [x for x in b.order if shape[x] > 1]
        if any(owned(a, r) is None for r in range(3)) or any(owned(b, r) is None for r in range(3)):
            continue
        empty = any(0 in map(len, owned(a, r)) for r in range(3))
        if empty:
            continue
        assert a.same_ownership(b) == same, (a, b)
        assert (a == b) == (same and order), (a, b)
        assert a != b or hash(a) == hash(b)
        equal += a == b
    assert equal > 20


def test_canonical_examples():
    """The same elements, written differently."""
    one, two = ProcessGrid.of((4,)), ProcessGrid.of((1, 4))
    assert Layout((8, 3), one, (Cyclic(0, 2), None)) == Layout((8, 3), two, (Cyclic(1, 2), None))
    assert Layout((8,), one, (Cyclic(0, 9),)) == Layout((8,), one, (Cyclic(0, 8),))
    assert Layout((8,), one, (Cyclic(0, 2),)) == Layout((8,), one, (Cyclic(0, 2, 0),))
    assert Layout((8,), one, (Cyclic(0, 1),)) != Layout((8,), one, (Cyclic(0, 2),))
    assert Layout((8, 8), two, (None, None)) == Layout((8, 8), one, (None, None))
    assert Layout((4, 4), one, (None, None), (), (0, 1)) != Layout((4, 4), one, (None, None), (), (1, 0))


def test_parts_make_the_whole():
    """In random layouts of any dimension each replica of the parts tiles the array, and owners agree."""
    rng = np.random.default_rng(6)
    for _ in range(500):
        layout = _random_layout(rng, 6)
        seen = np.zeros(layout.shape, int)
        for r in range(6):
            expected = owned(layout, r)
            if expected is None:
                assert not layout.holds(r)
                assert layout.local_shape(r) == (0,) * len(layout.shape)
                continue
            assert [layout.indices(a, r).tolist() for a in range(len(layout.shape))] == expected
            coords = tuple(layout.axis_coord(a, r) for a in range(len(layout.shape)))
            assert r in layout.owners(coords)
            index, count = layout.replica(r)
            assert layout.owners(coords)[index] == r
            if index == 0:
                seen[np.ix_(*expected)] += 1
            assert count == len(layout.owners(coords))
        assert (seen == 1).all()
        again = pickle.loads(pickle.dumps(layout))
        assert again == layout
        assert again.order == layout.order


def test_transpose():
    """A permutation of the axes permutes everything."""
    rng = np.random.default_rng(7)
    for _ in range(300):
        layout = _random_layout(rng, 6)
        axes = tuple(int(a) for a in rng.permutation(len(layout.shape)))
        turned = layout.transpose(axes)
        for r in layout.grid.ranks:
            assert turned.local_shape(r) == tuple(layout.local_shape(r)[a] for a in axes)
            for k, a in enumerate(axes):
                assert np.array_equal(turned.indices(k, r), layout.indices(a, r))


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 9])
def test_distributions(p):
    """Words and values mean what they say, and `describe` finds them again."""
    shape = (13, 7)
    row = resolve("row", shape, size=p)
    assert [row.local_shape(r) for r in range(p)] == [(len(h), 7) for h in deal(13, -(-13 // p), 0, p)]
    col = resolve("col", shape, size=p)
    assert sum(col.local_shape(r)[1] for r in range(p)) == 7
    assert all(resolve("replicated", shape, size=p).local_shape(r) == shape for r in range(p))
    last = resolve(pypto.OnDevice(p - 1), shape, size=p)
    assert [last.holds(r) for r in range(p)] == [r == p - 1 for r in range(p)]
    for grid in factorings(p):
        cyclic = resolve(pypto.BlockCyclic((2, 3), grid), shape, size=p)
        for r in range(p):
            i, j = cyclic.grid.coords(r)
            assert cyclic.indices(0, r).tolist() == deal(13, 2, 0, grid[0])[i]
            assert cyclic.indices(1, r).tolist() == deal(7, 3, 0, grid[1])[j]
        block = resolve(pypto.Block(grid), shape, size=p)
        assert block.dims[0].nb == -(-13 // grid[0])
        assert resolve(describe(cyclic), shape, size=p).same_ownership(cyclic)
    for word in ("auto", "row", "col", "block", "block_cyclic", "replicated"):
        layout = resolve(word, shape, size=p)
        again = describe(layout)
        assert not isinstance(again, str)
        assert resolve(again, shape, size=p).same_ownership(layout)
    assert resolve("auto", (3, 50, 4), size=p).dims[1] is not None
    assert resolve("auto", (), size=p).local_shape(0) == ()
    assert squarest(p)[0] * squarest(p)[1] == p


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ProcessGrid.of((2, 2), (0, 1, 2)), "4 places for 3 ranks"),
        (lambda: ProcessGrid.of((2,), (0, 0)), "distinct"),
        (lambda: Layout((4,), ProcessGrid.of((2,)), (Cyclic(1, 1),)), "axes 0 to 0"),
        (lambda: Layout((4, 4), ProcessGrid.of((2,)), (Cyclic(0, 1), Cyclic(0, 1))), "each may serve one"),
        (lambda: Layout((4,), ProcessGrid.of((2,)), (Cyclic(0, 0),)), "nb must be positive"),
        (lambda: Layout((4,), ProcessGrid.of((2,)), (Cyclic(0, 1, 2),)), "src below"),
        (lambda: Layout((4,), ProcessGrid.of((2,)), ()), "0 entries"),
        (lambda: Layout((4, 4), ProcessGrid.of((2,)), (None, None), (), (0, 0)), "permutation"),
        (lambda: resolve("rows", (4,), size=2), "choose from"),
        (lambda: resolve(pypto.OnDevice(2), (4,), size=2), "numbered from 0"),
        (lambda: resolve(pypto.BlockCyclic(4, (2, 2)), (4, 4), size=2), "needs 4 device"),
        (lambda: resolve(pypto.BlockCyclic(20000), (4, 4), size=2), "1 to 10000"),
        (lambda: resolve(pypto.Block((2, 1, 1)), (4, 4), size=2), "3 extents"),
        (lambda: resolve(7, (4, 4), size=2), "is not a distribution"),
    ],
)
def test_errors(make, text):
    """A wrong value is named, with what is allowed."""
    with pytest.raises(ValueError, match=text):
        make()


def test_sizes_are_64_bits():
    """Counts beyond 2^31 are right, without anything of that size being made."""
    n = 2**40 + 5
    grid = ProcessGrid.of((3,))
    layout = Layout((n, 2), grid, (Cyclic(0, 2**20 + 1), None))
    assert sum(layout.local_shape(r)[0] for r in range(3)) == n
    coord, il = layout.to_local(0, n - 1)
    assert layout.to_global(0, coord, il) == n - 1
    assert layout.max_local_size() > 2**38
    assert default_nb((n, n), (2, 2)) >= 16
    assert all(a * b == 12 for a, b in factorings(12))
    assert len(list(itertools.chain(factorings(12)))) == 6
