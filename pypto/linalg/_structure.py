"""What can be seen of a distributed matrix that makes a system with it cheaper: band, triangle, symmetry.

A matrix without structure shows it in its corners, its first row and its first column, so that it costs one small
reduction to see that there is nothing; only then is all of it looked at.
"""

import numpy as np

from pypto.linalg._lines import first_column, first_row
from pypto.tiles.redistribute import redistribute
from pypto.tiles.tiled import TiledArray

__all__ = ["THIN", "band", "bandwidth", "structure"]

#: A matrix counts as banded where its band has at most this part of it.
THIN = 1 / 16


def bandwidth(a: TiledArray) -> tuple[int, int]:
    """Return the numbers of diagonals below and above the main one that hold something other than zero. Collective."""
    far = np.zeros(2, np.int64)
    if a.layout.holds(a.world.rank) and a.local.size:
        i, j = (a.layout.indices(k, a.world.rank) for k in (0, 1))
        for jl in range(a.local.shape[1]):
            rows = np.flatnonzero(a.local[:, jl])
            if len(rows):
                far = np.maximum(far, [i[rows[-1]] - j[jl], j[jl] - i[rows[0]]])
    a.world.comm.allreduce(far, "max")
    return int(far[0]), int(far[1])


def band(a: TiledArray, below: int, above: int) -> np.ndarray:
    """Return the band in LAPACK's storage, ab[above + i - j, j] = a[i, j], on every rank. Collective."""
    n = a.shape[1]
    ab = np.zeros((below + above + 1, n), a.dtype, order="F")
    if a.layout.holds(a.world.rank) and a.local.size:
        i, j = (a.layout.indices(k, a.world.rank) for k in (0, 1))
        for jl, column in enumerate(j):
            rows = slice(*np.searchsorted(i, [column - above, column + below + 1]))
            ab[above + i[rows] - column, column] = a.local[rows, jl]
    a.world.comm.allreduce(ab)
    return ab


def structure(a: TiledArray) -> str:
    """Return the most special structure of a square matrix, by SciPy's words, ``"general"`` where there is none. Collective."""
    n = a.shape[0]
    if n < 2:
        return "general"
    if a.world.size == 1 and _plainly_general(a.local):
        return "general"
    row, column = first_row(a), first_column(a)
    if column[-1] == 0 or row[-1] == 0:
        below, above = bandwidth(a)
        if below == above == 0:
            return "diagonal"
        if above == 0:
            return "lower triangular"
        if below == 0:
            return "upper triangular"
        if below <= 1 and above <= 1 and n > 3:
            return "tridiagonal"
        if below + above + 1 <= THIN * n:
            return "banded"
    for name, mirrored in (("hermitian", row.conj()), ("symmetric", row)):
        if np.array_equal(column[1:], mirrored[1:]) and _is_symmetric(a, name == "hermitian"):
            return name if a.dtype.kind == "c" else "symmetric"
    return "general"


def _plainly_general(a: np.ndarray) -> bool:
    """Return whether the corners rule out a band or triangle, and two elements any symmetry."""
    return a[-1, 0] != 0 != a[0, -1] and a[0, 1] != a[1, 0] and a[0, 1] != a[1, 0].conj()


def _is_symmetric(a: TiledArray, conjugate: bool) -> bool:
    """Compare A with its transpose, which is brought to where A is. Collective; one redistribution of A."""
    other = redistribute(a.transpose((1, 0)), a.layout).local
    same = np.array([True])
    for j in range(a.local.shape[1]):
        mine = a.local[:, j]
        if not np.array_equal(mine, other[:, j].conj() if conjugate else other[:, j]):
            same[0] = False
            break
    a.world.comm.allreduce(same, "land")
    return bool(same[0])
