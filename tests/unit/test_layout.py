"""Layouts against a brute-force oracle that deals tiles one at a time, for every rank of every grid."""

import itertools
import pickle

import numpy as np
import pytest

from pypto.layout.grid import ProcessGrid, factorings
from pypto.layout.layout import Cyclic, Layout, numroc


def deal(n, nb, src, p):
    """Deal tiles of nb indices to p hands, one at a time."""
    hands = [[] for _ in range(p)]
    for tile, begin in enumerate(range(0, n, nb)):
        hands[(src + tile) % p] += range(begin, min(begin + nb, n))
    return hands


def owned(layout, rank):
    """Return the indices a rank holds along each axis and the number of its summand, by the oracle; None outside."""
    coords = layout.grid.coords(rank)
    if coords is None:
        return None
    parts = []
    for n, d in zip(layout.shape, layout.dims, strict=True):
        parts.append(list(range(n)) if d is None else deal(n, d.nb, d.src, layout.grid.shape[d.axis])[coords[d.axis]])
    summand = 0
    for a in layout.partial:
        summand = summand * layout.grid.shape[a] + coords[a]
    return parts, summand


def random_layout(rng, size, shape=None):
    """Return a layout over some of the ranks, on a grid of one to three axes, each dealing, partial or unused."""
    shape = tuple(int(n) for n in rng.integers(0, 12, int(rng.integers(0, 4)))) if shape is None else shape
    ranks = tuple(int(r) for r in rng.permutation(size)[: int(rng.integers(1, size + 1))])
    pairs = factorings(len(ranks))
    grids = [(len(ranks),), *pairs, *((1, *g) for g in pairs), *((*g, 1) for g in pairs)]
    grid = ProcessGrid.of(grids[int(rng.integers(len(grids)))], ranks)
    free = [int(a) for a in rng.permutation(grid.ndim)]
    dims = []
    for n in shape:
        axis = free.pop() if free and rng.random() < 0.7 else None
        nb, src = int(rng.integers(1, n + 3)), int(rng.integers(9))
        dims.append(None if axis is None else Cyclic(axis, nb, src % grid.shape[axis]))
    partial = tuple(a for a in free if rng.random() < 0.3)
    return Layout(shape, grid, tuple(dims), partial, tuple(int(a) for a in rng.permutation(len(shape))))


@pytest.mark.parametrize("p", range(1, 10))
def test_one_axis(p):
    """Every n, nb and src: counts, indices and both maps agree with the oracle."""
    grid = ProcessGrid.of((p,))
    for n in range(18):
        for nb in range(1, n + 2):
            for src in range(p):
                hands = deal(n, nb, src, p)
                layout = Layout((n,), grid, (Cyclic(0, nb, src),))
                assert sorted(itertools.chain(*hands)) == list(range(n))
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


@pytest.mark.parametrize("p", range(1, 10))
def test_scalars(p):
    """The maps take and return Python integers as well as arrays."""
    layout = Layout((17, 4), ProcessGrid.of((p,)), (Cyclic(0, 3, p - 1), None))
    for i in range(17):
        coord, il = layout.to_local(0, i)
        assert type(coord) is type(il) is int
        assert i == deal(17, 3, p - 1, p)[coord][il] == layout.to_global(0, coord, il)
    assert layout.to_local(1, 2) == (0, 2)
    assert layout.to_global(1, 0, 2) == 2
    coord, il = layout.to_local(1, np.arange(4))
    assert coord.tolist() == [0, 0, 0, 0]
    assert il.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("p", range(1, 10))
def test_two_axes(p):
    """Every grid of p ranks in either direction, uneven and empty parts, every src: parts are the oracle's."""
    shapes = [(7, 5), (1, 9), (0, 4), (17, 2)]
    for grid_shape, flip, shape in itertools.product(factorings(p), (False, True), shapes):
        ranks = tuple(range(p)) if not flip else tuple(range(2 * p, p, -1))
        grid = ProcessGrid.of(grid_shape, ranks)
        first, second = (1, 0) if flip else (0, 1)
        for src in itertools.product(range(grid_shape[first]), range(grid_shape[second])):
            for nb in ((1, 2), (2, 1), (3, 3), (20, 4)):
                layout = Layout(shape, grid, (Cyclic(first, nb[0], src[0]), Cyclic(second, nb[1], src[1])))
                rows = deal(shape[0], nb[0], src[0], grid_shape[first])
                cols = deal(shape[1], nb[1], src[1], grid_shape[second])
                for k, r in enumerate(ranks):
                    at = divmod(k, grid_shape[1])
                    i, j = at[first], at[second]
                    assert layout.local_shape(r) == (len(rows[i]), len(cols[j]))
                    assert (layout.axis_coord(0, r), layout.axis_coord(1, r)) == (i, j)
                    assert layout.indices(0, r).tolist() == rows[i]
                    assert layout.axis_part(1, j).tolist() == cols[j]
                    assert layout.owners((i, j)) == (r,)
                    assert layout.replica(r) == (0, 1)
                assert (layout.extent(0), layout.extent(1)) == (grid_shape[first], grid_shape[second])
                assert not layout.holds(3 * p)
                assert layout.local_shape(3 * p) == (0, 0)
                assert layout.max_local_size() == max(map(len, rows)) * max(map(len, cols))


@pytest.mark.parametrize("p", range(1, 9))
def test_three_axes(p):
    """Three-dimensional grids, their axes used by any axes of the array or by none, which makes replicas."""
    shape = (5, 4, 3)
    for grid_shape in itertools.product(range(1, p + 1), repeat=3):
        if np.prod(grid_shape) != p:
            continue
        grid = ProcessGrid.of(grid_shape)
        for uses in itertools.product((None, 0, 1, 2), repeat=3):
            used = [a for a in uses if a is not None]
            if len(set(used)) < len(used):
                continue
            layout = Layout(shape, grid, tuple(None if a is None else Cyclic(a, 2, grid_shape[a] - 1) for a in uses))
            copies = p // int(np.prod([grid_shape[a] for a in used], dtype=int))
            seen = np.zeros(shape, int)
            for r in range(p):
                expected, _ = owned(layout, r)
                assert layout.local_shape(r) == tuple(map(len, expected))
                assert [layout.indices(a, r).tolist() for a in range(3)] == expected
                assert layout.replica(r)[1] == copies
                seen[np.ix_(*expected)] += 1
            assert (seen == copies).all()


def test_parts_make_the_whole():
    """In random layouts of any dimension each replica of the parts tiles the array, and owners agree."""
    rng = np.random.default_rng(6)
    for _ in range(1000):
        layout = random_layout(rng, 6)
        axes = range(len(layout.shape))
        seen = np.zeros(layout.shape, int)
        sizes = []
        for r in range(6):
            if owned(layout, r) is None:
                assert not layout.holds(r)
                assert layout.local_shape(r) == (0,) * len(layout.shape)
                assert all(layout.indices(a, r).size == 0 for a in axes)
                continue
            expected, _ = owned(layout, r)
            assert [layout.indices(a, r).tolist() for a in axes] == expected
            sizes.append(int(np.prod(layout.local_shape(r), dtype=int)))
            coords = tuple(layout.axis_coord(a, r) for a in axes)
            group = layout.owners(coords)
            assert list(group) == sorted(group)
            assert all(owned(layout, s)[0] == expected for s in group)
            index, count = layout.replica(r)
            assert group[index] == r
            assert count == len(group)
            if index == 0:
                seen[np.ix_(*expected)] += 1
        assert (seen == 1).all()
        assert layout.max_local_size() == max(sizes)
        again = pickle.loads(pickle.dumps(layout))
        assert again == layout
        assert (again.grid, again.dims, again.partial, again.order) == (
            layout.grid,
            layout.dims,
            layout.partial,
            layout.order,
        )


def test_equality_is_ownership():
    """Layouts are equal exactly when every rank holds the same indices, and summand, in the same memory order."""
    rng = np.random.default_rng(5)
    equal = 0
    for _ in range(12000):
        shape = tuple(int(n) for n in rng.integers(0, 5, int(rng.integers(0, 4))))
        a, b = random_layout(rng, 3, shape), random_layout(rng, 3, shape)
        same = all(owned(a, r) == owned(b, r) for r in range(3))
        order = [x for x in a.order if shape[x] > 1] == [x for x in b.order if shape[x] > 1]
        assert a.same_ownership(b) == same, (a, b)
        assert (a == b) == (same and order), (a, b)
        if a == b:
            equal += 1
            assert hash(a) == hash(b)
            # What is cached under one of two equal layouts is right for the other.
            assert all(a.local_shape(r) == b.local_shape(r) and a.holds(r) == b.holds(r) for r in range(3))
            # Blocks without elements may be told apart by their coordinates; nothing is ever sent for them.
            assert all(a.replica(r) == b.replica(r) for r in range(3) if np.prod(a.local_shape(r)) and a.holds(r))
    assert equal > 400


def test_canonical_examples():
    """The same elements, written differently."""
    one, two = ProcessGrid.of((4,)), ProcessGrid.of((1, 4))
    cyclic = Layout((8, 3), one, (Cyclic(0, 2), None))
    assert cyclic == Layout((8, 3), two, (Cyclic(1, 2), None))
    assert cyclic == Layout((8, 3), two, (Cyclic(1, 2), Cyclic(0, 1)))
    assert cyclic != Layout((8, 3), two, (Cyclic(1, 2), None), order=(0, 1))
    assert cyclic.same_ownership(Layout((8, 3), two, (Cyclic(1, 2), None), order=(0, 1)))
    assert Layout((8,), one, (Cyclic(0, 9),)) == Layout((8,), one, (Cyclic(0, 8),))
    assert Layout((8,), one, (Cyclic(0, 9, 1),)) != Layout((8,), one, (Cyclic(0, 9),))
    assert Layout((8,), one, (Cyclic(0, 1),)) != Layout((8,), one, (Cyclic(0, 2),))
    assert Layout((8,), one, (Cyclic(0, 2, 1),)) == Layout((8,), ProcessGrid.of((4,), (1, 2, 3, 0)), (Cyclic(0, 2),))
    assert Layout((8, 8), two, (None, None)) == Layout((8, 8), one, (None, None))
    assert Layout((8, 8), one, (None, None)) == Layout((8, 8), ProcessGrid.of((4,), (3, 1, 0, 2)), (None, None))
    assert Layout((8, 8), one, (None, None)) != Layout((8, 8), ProcessGrid.of((3,)), (None, None))
    assert Layout((4, 4), one, (None, None), order=(0, 1)) != Layout((4, 4), one, (None, None), order=(1, 0))
    assert Layout((4, 1), one, (None, None), order=(0, 1)) == Layout((4, 1), one, (None, None), order=(1, 0))
    # A rank that owns nothing has a part of no rows; a rank outside has no part.
    assert Layout((8,), ProcessGrid.of((2,)), (Cyclic(0, 8),)) != Layout((8,), ProcessGrid.of((1,)), (None,))
    assert cyclic != 1


def test_partial_sums():
    """A sum of one summand is no sum; the numbers of the summands count, however their axes are written."""
    line, box = ProcessGrid.of((4,)), ProcessGrid.of((2, 2))
    sums = Layout((3,), line, (None,), (0,))
    assert sums.partial == (0,)
    assert sums != Layout((3,), line, (None,))
    assert sums == Layout((3,), box, (None,), (0, 1)) == Layout((3,), box, (None,), (1, 0))
    assert sums == Layout((3,), ProcessGrid.of((1, 4)), (None,), (0, 1))
    assert sums != Layout((3,), ProcessGrid.of((4,), (1, 0, 2, 3)), (None,), (0,))
    assert Layout((3,), box, (None,), (0,)) != Layout((3,), box, (None,), (1,))
    alone = Layout((3,), ProcessGrid.of((1, 4)), (Cyclic(1, 1),), (0,))
    assert alone.partial == ()
    assert alone == Layout((3,), line, (Cyclic(0, 1),))


def test_storage_order():
    """Matrices are stored by columns, other arrays by rows, unless told otherwise."""
    grid = ProcessGrid.of((2,))
    for shape, order in (((), ()), ((3,), (0,)), ((3, 4), (1, 0)), ((3, 4, 5), (0, 1, 2))):
        for given in ((), None):
            assert Layout(shape, grid, (None,) * len(shape), (), given).order == order
            assert Layout.replicated(shape, grid, given).order == order
    layout = Layout((3, 4, 5), grid, (Cyclic(0, 2), None, None), (), (2, 0, 1))
    assert layout.replace(order=(1, 0, 2)).order == (1, 0, 2)
    assert layout.replace(shape=(9, 4, 5)).order == (2, 0, 1)
    assert layout.replace(shape=(9, 4), dims=(None, None)).order == (1, 0)
    assert layout.replace(dims=(None, None, None)) == Layout.replicated((3, 4, 5), grid, (2, 0, 1))


def test_transpose():
    """A permutation of the axes permutes everything, memory order too, so that the parts are transposed views."""
    rng = np.random.default_rng(7)
    for _ in range(500):
        layout = random_layout(rng, 6)
        axes = tuple(int(a) for a in rng.permutation(len(layout.shape)))
        turned = layout.transpose(axes)
        for r in layout.grid.ranks:
            assert turned.local_shape(r) == tuple(layout.local_shape(r)[a] for a in axes)
            for k, a in enumerate(axes):
                assert np.array_equal(turned.indices(k, r), layout.indices(a, r))
        assert [axes[a] for a in turned.order] == list(layout.order)
        assert turned.partial == layout.partial
        assert turned.transpose(tuple(axes.index(k) for k in range(len(axes)))) == layout


def test_cached_parts_are_read_only():
    """The index arrays are shared and must not be written to."""
    layout = Layout((8,), ProcessGrid.of((2,)), (Cyclic(0, 2),))
    assert layout.indices(0, 1) is layout.axis_part(0, 1)
    with pytest.raises(ValueError, match="read-only"):
        layout.axis_part(0, 0)[0] = 5


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda g: Layout((4,), g, ()), "0 entries for an array of 1 axes"),
        (lambda g: Layout((-1,), g, (None,)), "negative extent"),
        (lambda g: Layout((4,), g, (Cyclic(1, 1),)), "axes 0 to 0"),
        (lambda g: Layout((4,), g, (Cyclic(-1, 1),)), "axes 0 to 0"),
        (lambda g: Layout((4,), g, (None,), (1,)), "axes 0 to 0"),
        (lambda g: Layout((4, 4), g, (Cyclic(0, 1), Cyclic(0, 1))), "each may serve one"),
        (lambda g: Layout((4,), g, (Cyclic(0, 1),), (0,)), "each may serve one array axis, or be partial"),
        (lambda g: Layout((4,), g, (None,), (0, 0)), "each may serve one"),
        (lambda g: Layout((4,), g, (Cyclic(0, 0),)), "nb must be positive"),
        (lambda g: Layout((4,), g, (Cyclic(0, 1.5),)), "must be integers"),
        (lambda g: Layout((4,), g, (Cyclic(0, 1, 2),)), "src below the grid's extent 2"),
        (lambda g: Layout((4,), g, (Cyclic(0, 1, -1),)), "src below"),
        (lambda g: Layout((4, 4), g, (None, None), (), (0, 0)), "not a permutation of the 2 axes"),
        (lambda g: Layout((4, 4), g, (None, None)).transpose((0, 0)), "not a permutation of the 2 axes"),
        (lambda g: Layout((4, 4), g, (None, None)).transpose((0,)), "not a permutation of the 2 axes"),
        (lambda g: Layout((4,), g, (None,)).replica(2), "rank 2 is not in the grid"),
    ],
)
def test_errors(make, text):
    """A wrong value is named, with what is allowed."""
    with pytest.raises(ValueError, match=text):
        make(ProcessGrid.of((2,)))


def test_sizes_are_64_bits():
    """Counts beyond 2^31 are right, without anything of that size being made."""
    n = 2**40 + 5
    layout = Layout((n, 2), ProcessGrid.of((3,)), (Cyclic(0, 2**20 + 1), None))
    assert sum(layout.local_shape(r)[0] for r in range(3)) == n
    coord, il = layout.to_local(0, n - 1)
    assert layout.to_global(0, coord, il) == n - 1
    assert layout.to_local(0, np.array([n - 1])) == (coord, il)
    assert layout.max_local_size() > 2**38
