"""Plans executed for all ranks in one process against brute force, without MPI."""

import numpy as np
import pytest
from pypto.device._kernels import copy_indexed

from pypto.comm.mpi import _bytes
from pypto.device.cpu import CpuDevice
from pypto.layout.grid import ProcessGrid, factorings
from pypto.layout.layout import Cyclic, Layout
from pypto.tiles.redistribute import Transfer, plan


def random_layout(rng, size, shape, partial=False):
    """Return a random layout over some of the ranks."""
    ranks = tuple(int(r) for r in rng.permutation(size)[: int(rng.integers(1, size + 1))])
    shapes = factorings(len(ranks))
    grid = ProcessGrid.of(shapes[int(rng.integers(len(shapes)))], ranks)
    dims = [None] * len(shape)
    free = []
    for axis in range(2):
        a = int(rng.integers(0, len(shape) + 1))
        if a < len(shape) and dims[a] is None:
            dims[a] = Cyclic(axis, int(rng.integers(1, max(shape) + 2)), int(rng.integers(0, grid.shape[axis])))
        else:
            free.append(axis)
    sums = tuple(free[:1]) if partial else ()
    return Layout(shape, grid, tuple(dims), sums, tuple(int(a) for a in rng.permutation(len(shape))))


def local(layout, rank, whole):
    """Return a rank's part of an array, stored in the layout's order."""
    part = CpuDevice.empty(layout.local_shape(rank), whole.dtype, layout.order)
    if layout.holds(rank):
        part[...] = whole[np.ix_(*(layout.indices(a, rank) for a in range(len(layout.shape))))]
    return part


class Post:
    """A communicator of one process: messages are handed over when the sender has packed them."""

    def __init__(self):
        self.mail = {}

    def of(self, rank):
        """Return the communicator as one rank sees it."""
        return _Mine(self, rank)


class _Mine:
    def __init__(self, post, rank):
        self.post, self.rank = post, rank

    def isend(self, buf, dest):
        key = (self.rank, dest)
        assert key not in self.post.mail, "more than one message between two ranks"
        self.post.mail[key] = _bytes(buf).copy()
        return _Arrived(None, None, None)

    def irecv(self, buf, source):
        return _Arrived(self.post, (source, self.rank), buf)


class _Arrived:
    def __init__(self, post, key, buf):
        self.post, self.key, self.buf = post, key, buf

    def test(self):
        return True

    def wait(self, idle=None):
        if self.post is not None:
            sent = self.post.mail.pop(self.key)
            assert sent.nbytes == self.buf.nbytes
            _bytes(self.buf)[...] = sent


def move(src, dst, parts, size, region=None, fill=-1.0):
    """Run every rank's plan and return the destination's parts."""
    post = Post()
    outs = [CpuDevice.empty(dst.local_shape(r), parts[0].dtype, dst.order) for r in range(size)]
    for out in outs:
        out[...] = fill
    transfers = [
        Transfer(plan(src, dst, r, region), parts[r], outs[r], post.of(r), copy_indexed, CpuDevice.empty) for r in range(size)
    ]
    for t in transfers:
        t.wait()
    assert not post.mail, "a message was not received"
    return outs


@pytest.mark.parametrize("size", range(1, 10))
def test_any_to_any(size):
    """Every element arrives in its place; what is sent is what is received."""
    rng = np.random.default_rng(size)
    for _ in range(120):
        shape = tuple(int(n) for n in rng.integers(0, 18, int(rng.integers(1, 4))))
        src, dst = (random_layout(rng, size, shape) for _ in range(2))
        whole = rng.standard_normal(shape)
        outs = move(src, dst, [local(src, r, whole) for r in range(size)], size)
        for r in range(size):
            assert np.array_equal(outs[r], local(dst, r, whole)), (src, dst, r)


@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_partial_sums(size):
    """Summands are added on the way; integers, so exactly."""
    rng = np.random.default_rng(100 + size)
    for _ in range(80):
        shape = tuple(int(n) for n in rng.integers(1, 12, 2))
        src, dst = random_layout(rng, size, shape, partial=True), random_layout(rng, size, shape)
        parts = [rng.integers(-9, 9, src.local_shape(r)) for r in range(size)]
        if not src.partial:
            whole = rng.integers(-9, 9, shape)
            parts = [local(src, r, whole) for r in range(size)]
        total = np.zeros(shape, np.int64)
        first = {}
        for r in src.grid.ranks:
            coords = src.grid.coords(r)
            block = tuple(src.axis_coord(a, r) for a in range(2))
            key = (block, tuple(coords[a] for a in src.partial))
            if key in first:
                parts[r] = parts[first[key]].copy()  # replicas of one summand are equal
                continue
            first[key] = r
            total[np.ix_(*(src.indices(a, r) for a in range(2)))] += parts[r]
        outs = move(src, dst, parts, size, fill=0)
        for r in range(size):
            assert np.array_equal(outs[r], local(dst, r, total)), (src, dst)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_regions(size):
    """dst[d0 + ds t] = src[s0 + ss t] for steps of both signs; nothing else changes."""
    rng = np.random.default_rng(200 + size)
    for _ in range(150):
        ndim = int(rng.integers(1, 3))
        s_shape, d_shape = (tuple(int(n) for n in rng.integers(1, 16, ndim)) for _ in range(2))
        region, si, di = [], [], []
        for n, m in zip(s_shape, d_shape, strict=True):
            ss, ds = (int(rng.choice([-3, -2, -1, 1, 2, 3])) for _ in range(2))
            count = int(rng.integers(0, min(-(-n // abs(ss)), -(-m // abs(ds))) + 1))
            span_s, span_d = abs(ss) * max(count - 1, 0), abs(ds) * max(count - 1, 0)
            a, b = int(rng.integers(0, n - span_s)), int(rng.integers(0, m - span_d))
            s0, d0 = (a if ss > 0 else a + span_s), (b if ds > 0 else b + span_d)
            region.append((count, s0, ss, d0, ds))
            si.append(s0 + ss * np.arange(count))
            di.append(d0 + ds * np.arange(count))
        src, dst = random_layout(rng, size, s_shape), random_layout(rng, size, d_shape)
        whole = rng.standard_normal(s_shape)
        expected = np.full(d_shape, -1.0)
        expected[np.ix_(*di)] = whole[np.ix_(*si)]
        outs = move(src, dst, [local(src, r, whole) for r in range(size)], size, tuple(region))
        for r in range(size):
            assert np.array_equal(outs[r], local(dst, r, expected)), (src, dst, region)


def test_what_stays_is_not_sent():
    """A rank that has a block does not ask another for it."""
    grid = ProcessGrid.of((2, 2))
    whole = Layout((8, 8), grid, (None, None))
    tiles = Layout((8, 8), grid, (Cyclic(0, 2), Cyclic(1, 2)))
    assert all(plan(whole, tiles, r).messages == 0 for r in range(4))
    assert all(plan(tiles, whole, r).messages == 3 for r in range(4))
    assert all(plan(tiles, whole, r).elements == 48 for r in range(4))


def test_long_axes_are_cheap_to_plan():
    """A plan for 2^40 elements holds intervals, not indices."""
    grid = ProcessGrid.of((3,))
    n = 2**40
    src = Layout((n,), grid, (Cyclic(0, -(-n // 3)),))
    dst = Layout((n,), grid, (Cyclic(0, n // 2),))
    total = sum(plan(src, dst, r).elements + sum(m.size for m in plan(src, dst, r).local) for r in range(3))
    assert total == n
