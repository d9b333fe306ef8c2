"""Helpers of the distributed tests."""

import contextlib

import numpy as np
import pytest

import pypto
from pypto.layout.grid import factorings

DTYPES = ("f", "d", "F", "D")


def all_ranks(ctx, condition, message=""):
    """Fail on every rank where the condition fails on one, so that no rank waits for another."""
    flags = ctx.engine.world.comm.allgather_object((bool(condition), str(message)))
    bad = [f"rank {r}: {text}" for r, (fine, text) in enumerate(flags) if not fine]
    assert not bad, "\n".join(bad[:3])


@contextlib.contextmanager
def all_raises(ctx, kind, match=""):
    """Expect the same exception on every rank."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    texts = ctx.engine.world.comm.allgather_object(str(caught.value))
    assert len(set(texts)) == 1, f"the ranks raise differently: {texts}"


def random_matrix(rng, shape, char):
    """Return a matrix of standard normal numbers of one of the four types."""
    a = rng.standard_normal(shape)
    if char in "FD":
        a = a + 1j * rng.standard_normal(shape)
    return a.astype(char)


def distributions(p, nbs=(1, 3, 8)):
    """Return every named distribution, and block-cyclic ones over every grid of p ranks."""
    cyclic = [pypto.BlockCyclic(nb, grid) for nb in nbs for grid in factorings(p)]
    return ["auto", "row", "col", "block", "block_cyclic", "replicated", pypto.OnDevice(p - 1), *cyclic]


def assert_same(ctx, result, expected, tol=None):
    """Compare a distributed result with NumPy's: exactly, or elementwise to a multiple of the rounding unit."""
    got = np.asarray(result)
    expected = np.asarray(expected)
    fine = got.shape == expected.shape and got.dtype == expected.dtype
    if fine and tol is None:
        fine = np.array_equal(got, expected, equal_nan=expected.dtype.kind in "fc")
    elif fine:
        eps = np.finfo(expected.dtype).eps
        scale = np.abs(expected).max() if expected.size else 1.0
        fine = bool(np.all(np.abs(got - expected) <= tol * eps * max(scale, 1e-300)))
    all_ranks(ctx, fine, f"got {got.dtype}{got.shape}\n{got}\nexpected {expected.dtype}{expected.shape}\n{expected}")
