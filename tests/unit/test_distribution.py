"""What words and values of `distribution=` mean, against a brute-force dealer, and back from the layout."""

import pickle

import numpy as np
import pytest

from pypto.layout.distribution import Block, BlockCyclic, Column, OnDevice, Replicated, Row, default_nb, describe, resolve
from pypto.layout.grid import ProcessGrid, factorings, squarest
from pypto.layout.layout import Cyclic, Layout

WORDS = ("auto", "row", "col", "block", "block_cyclic", "replicated")
SHAPES = [(), (0,), (1,), (13,), (13, 7), (1, 9), (0, 5), (3, 0), (40, 3), (2, 11, 5), (3, 4, 5, 2)]


def deal(n, nb, p):
    """Deal tiles of nb indices to p hands, one at a time."""
    hands = [[] for _ in range(p)]
    for tile, begin in enumerate(range(0, n, nb)):
        hands[tile % p] += range(begin, min(begin + nb, n))
    return hands


def blocks(n, p):
    """Return the p blocks of ceil(n/p) indices."""
    return deal(n, max(1, -(-n // p)), p)


def parts(layout, rank):
    """Return the indices of a rank along every axis."""
    return [layout.indices(a, rank).tolist() for a in range(len(layout.shape))]


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_meaning(p, shape):
    """Rows, columns, replicas and single devices, for arrays of any number of axes."""
    whole = [list(range(n)) for n in shape]
    for r in range(p):
        assert parts(resolve("replicated", shape, size=p), r) == whole
        alone = resolve(OnDevice(r), shape, size=p)
        assert [alone.holds(s) for s in range(p)] == [s == r for s in range(p)]
        assert parts(alone, r) == whole
        if shape:
            assert parts(resolve("row", shape, size=p), r) == [blocks(shape[0], p)[r], *whole[1:]]
            assert parts(resolve("col", shape, size=p), r) == [*whole[:-1], blocks(shape[-1], p)[r]]
    if not shape:
        assert all(resolve(w, shape, size=p) == resolve("replicated", shape, size=p) for w in WORDS)
    if len(shape) not in (0, 2):
        longest = max(range(len(shape)), key=lambda a: shape[a])
        auto = resolve("auto", shape, size=p)
        assert [d is not None for d in auto.dims] == [a == longest for a in range(len(shape))]


@pytest.mark.parametrize("p", range(1, 10))
def test_grids(p):
    """Blocks and tiles over every grid, also one of fewer devices than there are."""
    shape = (3, 13, 7)
    for size in (p, p + 2):
        for grid in factorings(p):
            cyclic = resolve(BlockCyclic((2, 3), grid), shape, size=size)
            assert cyclic == resolve(BlockCyclic((9, 2, 3), grid), shape, size=size)
            block = resolve(Block(grid), shape, size=size)
            assert block == resolve(Block((*grid, 1)), shape, size=size)
            for r in range(size):
                assert cyclic.holds(r) == block.holds(r) == (r < p)
                if r < p:
                    i, j = divmod(r, grid[1])
                    assert parts(cyclic, r) == [[0, 1, 2], deal(13, 2, grid[0])[i], deal(7, 3, grid[1])[j]]
                    assert parts(block, r) == [blocks(3, grid[0])[i], blocks(13, grid[1])[j], list(range(7))]
    assert [parts(resolve(BlockCyclic(2), (13,), size=p), r) for r in range(p)] == [[h] for h in deal(13, 2, p)]
    two = resolve("block", (50, 60), size=p)
    assert tuple(two.extent(a) for a in (0, 1)) == squarest(p)
    assert resolve("block", (50,), size=p) == resolve("row", (50,), size=p)


def test_defaults_of_the_context():
    """The context's grid and tile size hold where the value names none, and where they fit the array."""
    shape = (90, 90)
    for word in ("auto", "block_cyclic", BlockCyclic()):
        layout = resolve(word, shape, size=6, grid=(3, 2), nb=5)
        assert layout == resolve(BlockCyclic(5, (3, 2)), shape, size=6)
    assert resolve(BlockCyclic(7, (1, 6)), shape, size=6, grid=(3, 2), nb=5).dims[1] == Cyclic(1, 7)
    assert resolve(BlockCyclic(4), (9,), size=6, grid=(3, 2)) == resolve(BlockCyclic(4, (6,)), (9,), size=6)
    assert resolve("block_cyclic", shape, size=6, grid=(1, 3, 2)).grid.shape == squarest(6)
    assert resolve("auto", shape, size=6, grid=(6,)).grid.shape == squarest(6)


def test_default_nb():
    """Small matrices give every coordinate about two tiles, large ones tiles that GEMM likes."""
    for n in range(257):
        for p in range(1, 10):
            nb = default_nb((n, n), (p, 1))
            assert nb >= 16
            assert nb == 16 or -(-n // nb) >= 2 * p - p // 2 - 1
    sizes = [default_nb((n, n + 5), (2, 2)) for n in (257, 1000, 2000, 5000, 20000, 10**7)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 64
    assert sizes[-1] <= 256
    assert default_nb((), (1, 1)) == 16


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_describe_inverts_resolve(p, shape):
    """The description of a layout is a value that means it."""
    values = [*WORDS, Row(), Column(), Block(), Replicated(), *(OnDevice(r) for r in range(p))]
    for grid in factorings(p):
        values += [Block(grid), *(BlockCyclic(nb, grid) for nb in (1, 2, 3, 5, (2, 3)))]
    for value in values:
        try:
            layout = resolve(value, shape, size=p)
        except ValueError:  # a grid of two extents, or two tile sizes, for an array of one axis
            assert len(shape) == 1
            continue
        for size in (p, None):
            again = describe(layout, size)
            assert not isinstance(again, str), (value, again)
            assert resolve(again, shape, size=p).same_ownership(layout), (value, again)


def test_describe():
    """The named kinds come back by name, and a grid of fewer devices than there are is not taken for all of them."""
    shape = (8, 8)
    for value in (Row(), Column(), Block((2, 2)), BlockCyclic(2, (2, 2)), BlockCyclic((2, 1), (2, 2)), Replicated()):
        assert describe(resolve(value, shape, size=4)) == value
        assert describe(resolve(value, shape, size=4), 4) == value
    for r in range(4):
        assert describe(resolve(OnDevice(r), shape, size=4)) == OnDevice(r)
    assert describe(resolve("replicated", shape, size=1), 1) == Replicated()
    assert describe(resolve(Block((4,)), (8,), size=6), 6) == Block((4,))
    assert describe(resolve(Block((4, 1)), shape, size=6)) == Block((4, 1))
    assert describe(resolve("auto", (2, 9, 3), size=4)) == Block((1, 4, 1))
    turned = resolve(BlockCyclic(2, (1, 4)), shape, size=4).transpose((1, 0))
    assert describe(turned) == BlockCyclic(2, (4, 1)) or resolve(describe(turned), shape, size=4).same_ownership(turned)


def test_describe_in_words():
    """Other layouts are described by a text that names what matters."""
    odd = describe(Layout((8, 8), ProcessGrid.of((2, 2), (3, 2, 1, 0)), (Cyclic(0, 2, 1), Cyclic(1, 2))))
    assert odd == "grid (2, 2) of ranks (3, 2, 1, 0): (nb=2 over grid axis 0 from 1, nb=2 over grid axis 1 from 0)"
    sums = describe(Layout((8, 8), ProcessGrid.of((2, 2)), (Cyclic(0, 4), None), (1,)))
    assert "partial sums over (1,)" in sums
    assert "whole" in sums
    assert "ranks 5 to 24" in describe(Layout((8,), ProcessGrid.of((20,), range(5, 25)), (None,)))
    many = describe(Layout((8,), ProcessGrid.of((20,), range(39, -1, -2)), (Cyclic(0, 1),)))
    assert "ranks (39, 37, 35, 33, ..., 1)" in many
    assert isinstance(describe(resolve("replicated", (8,), size=3), 4), str)


def test_values():
    """Distributions are frozen values; lists and NumPy integers are taken as what they mean."""
    assert Block([2, 2]) == Block((2, 2))
    assert hash(BlockCyclic([2, 3], [1, 2])) == hash(BlockCyclic((2, 3), (1, 2)))
    assert BlockCyclic(np.int64(4)) == BlockCyclic(4)
    assert OnDevice(np.int32(1)) == OnDevice(1)
    for value in (Row(), Column(), Block((2, 1)), BlockCyclic(4, (2, 1)), Replicated(), OnDevice(1)):
        assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: resolve("rows", (4,), size=2), "choose from 'auto', 'row'"),
        (lambda: resolve(7, (4, 4), size=2), "is not a distribution"),
        (lambda: resolve(None, (4, 4), size=2), "is not a distribution"),
        (lambda: resolve(OnDevice(2), (4,), size=2), "numbered from 0"),
        (lambda: resolve(OnDevice(-1), (4,), size=2), "numbered from 0"),
        (lambda: OnDevice("0"), "number of a device"),
        (lambda: OnDevice(1.0), "number of a device"),
        (lambda: BlockCyclic(0), "1 to 10000"),
        (lambda: BlockCyclic(20000), "1 to 10000"),
        (lambda: BlockCyclic(2.5), "1 to 10000"),
        (lambda: BlockCyclic((2, 0)), "1 to 10000"),
        (lambda: BlockCyclic(()), "1 to 10000"),
        (lambda: BlockCyclic(2, ()), "tuple of positive integers"),
        (lambda: BlockCyclic(2, 4), "tuple of positive integers"),
        (lambda: Block((2, 0)), "tuple of positive integers"),
        (lambda: Block("ab"), "tuple of positive integers"),
        (lambda: resolve(BlockCyclic((2, 2, 2, 2)), (4, 4, 4), size=2), "give an integer, or 2 or 3"),
        (lambda: resolve(BlockCyclic((2, 2)), (4,), size=2), "give an integer, or 1"),
        (lambda: resolve(BlockCyclic(4, (2, 2)), (4, 4), size=2), "needs 4 device"),
        (lambda: resolve(BlockCyclic(4, (1, 1, 2)), (4, 4, 4), size=2), "3 extents"),
        (lambda: resolve(Block((2, 1, 1)), (4, 4), size=2), "3 extents"),
        (lambda: resolve(Block((2, 2)), (4, 4), size=2), "needs 4 device"),
    ],
)
def test_errors(make, text):
    """A wrong value is named, with what is allowed."""
    with pytest.raises(ValueError, match=text):
        make()
