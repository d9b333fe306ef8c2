"""Fixtures of the distributed tests; they run on every rank."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _instances(world_size):
    """Ask for one instance of every test per number of ranks."""


@pytest.fixture
def ctx(world_size):
    """The context of all ranks."""
    import pypto

    context = pypto.init()
    assert context.size == world_size
    return context


@pytest.fixture
def world(ctx):
    """The world of all ranks."""
    return ctx.engine.world


@pytest.fixture
def rng():
    """The same random numbers on every rank."""
    return np.random.default_rng(20240229)
