"""Single rows, columns and diagonals of a distributed matrix as whole vectors on every rank."""

import numpy as np

from pypto.tiles.tiled import TiledArray

__all__ = ["diagonal", "first_column", "first_row", "set_diagonal"]


def _places(a: TiledArray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the columns j for which this rank holds a[j - k, j], and their local rows and columns."""
    if not a.layout.holds(a.world.rank):
        return (np.zeros(0, np.int64),) * 3
    i, j = (a.layout.indices(axis, a.world.rank) for axis in (0, 1))
    return np.intersect1d(i + k, j, return_indices=True)


def diagonal(a: TiledArray, k: int = 0) -> np.ndarray:
    """Return diagonal k <= 0 of a matrix on every rank, beginning with a[-k, 0]. Collective over the world."""
    d = np.zeros(max(min(a.shape[0] + k, a.shape[1]), 0), a.dtype)
    if a.layout.holds(a.world.rank) and a.layout.replica(a.world.rank)[0] == 0:
        j, at_i, at_j = _places(a, k)
        d[j] = a.local[at_i, at_j]
    a.world.comm.allreduce(d)
    return d


def set_diagonal(a: TiledArray, d: np.ndarray, k: int = 0) -> None:
    """Write diagonal k of a matrix: d[j] at a[j - k, j] where k <= 0, d[i] at a[i, i + k] where k > 0."""
    j, at_i, at_j = _places(a, k)
    a.local[at_i, at_j] = d[j - max(k, 0)]


def first_row(a: TiledArray) -> np.ndarray:
    """Return row 0 on every rank. Collective over the world."""
    v = np.zeros(a.shape[1], a.dtype)
    if a.local.size and a.layout.indices(0, a.world.rank)[0] == 0:
        v[a.layout.indices(1, a.world.rank)] = a.local[0]
    a.world.comm.allreduce(v)
    return v


def first_column(a: TiledArray) -> np.ndarray:
    """Return column 0 on every rank. Collective over the world."""
    return first_row(a.transpose((1, 0)))
