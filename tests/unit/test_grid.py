"""Process grids against enumeration."""

import itertools
import pickle

import pytest

from pypto.layout.grid import ProcessGrid, factorings, squarest


def boxes(p, ndim):
    """Return every shape of `ndim` extents whose product is p."""
    return [s for s in itertools.product(range(1, p + 1), repeat=ndim) if _product(s) == p]


def _product(shape):
    size = 1
    for n in shape:
        size *= n
    return size


@pytest.mark.parametrize("p", range(1, 10))
def test_places(p):
    """Ranks lie in C order; coordinates and ranks are inverse; sub-grids are those that share the other coordinates."""
    for ndim in (1, 2, 3):
        for shape in boxes(p, ndim):
            for ranks in (tuple(range(p)), tuple(reversed(range(p))), tuple(range(3, 3 + 2 * p, 2))):
                grid = ProcessGrid.of(shape, ranks)
                assert (grid.size, grid.ndim) == (p, ndim)
                places = list(itertools.product(*map(range, shape)))
                assert [grid.coords(r) for r in ranks] == places
                assert tuple(grid.rank_at(c) for c in places) == ranks
                assert grid.coords(100) is None
                for axes in itertools.chain.from_iterable(itertools.combinations(range(ndim), k) for k in range(ndim + 1)):
                    for r, at in zip(ranks, places, strict=True):
                        others = [a for a in range(ndim) if a not in axes]
                        same = [s for s, c in zip(ranks, places, strict=True) if all(c[a] == at[a] for a in others)]
                        assert grid.axis_ranks(r, axes) == tuple(same)


def test_values():
    """Grids are values: equal, hashed and pickled by content."""
    a, b = ProcessGrid.of((2, 2)), ProcessGrid((2, 2), (0, 1, 2, 3))
    assert a == b
    assert hash(a) == hash(b)
    assert a != ProcessGrid.of((4,))
    assert a != ProcessGrid.of((2, 2), (0, 1, 3, 2))
    assert a == ProcessGrid.of([2, 2])
    assert pickle.loads(pickle.dumps(b)) == a
    assert repr(a) == "ProcessGrid(shape=(2, 2), ranks=(0, 1, 2, 3))"


@pytest.mark.parametrize("p", range(1, 50))
def test_factorings(p):
    """Every pair is there, and the squarest is the one with the largest smaller extent."""
    assert factorings(p) == boxes(p, 2)
    assert squarest(p) == max(((r, c) for r, c in boxes(p, 2) if r <= c), key=lambda s: s[0])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ProcessGrid.of((2, 2), (0, 1, 2)), "4 places for 3 ranks"),
        (lambda: ProcessGrid.of((2,), (0, 0)), "distinct"),
        (lambda: ProcessGrid.of((1,), (-1,)), "not negative"),
        (lambda: ProcessGrid.of((2, 0)), "positive extents"),
        (lambda: ProcessGrid.of((2.0,)), "tuple of integers"),
        (lambda: ProcessGrid.of((1,), ("a",)), "tuple of integers"),
        (lambda: ProcessGrid.of(4), "tuple of integers"),
        (lambda: ProcessGrid.of((2, 2)).rank_at((0, 2)), "not in the grid of shape"),
        (lambda: ProcessGrid.of((2, 2)).rank_at((0, -1)), "not in the grid of shape"),
        (lambda: ProcessGrid.of((2, 2)).rank_at((0,)), "not in the grid of shape"),
        (lambda: ProcessGrid.of((2, 2)).axis_ranks(4, (0,)), "rank 4 is not in"),
        (lambda: ProcessGrid.of((2, 2)).axis_ranks(0, (2,)), "must be among"),
        (lambda: factorings(0), "positive number"),
        (lambda: squarest(0), "positive number"),
    ],
)
def test_errors(make, text):
    """A wrong value is named, with what is allowed."""
    with pytest.raises(ValueError, match=text):
        make()
