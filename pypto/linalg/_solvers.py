"""Solving A X = B on several devices by what is known of A, or seen of it, with an estimate of its condition."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pypto.layout.grid import ProcessGrid
from pypto.layout.layout import Cyclic, Layout
from pypto.linalg import _alone, _cholesky, _ldl, _lu, _triangular
from pypto.linalg._condition import norm_one, reciprocal_condition
from pypto.linalg._lines import diagonal, set_diagonal
from pypto.linalg._structure import THIN, band, bandwidth, structure
from pypto.linalg._triangular import trsm_layout
from pypto.tiles.redistribute import redistribute
from pypto.tiles.status import agreed
from pypto.tiles.tiled import TiledArray

__all__ = ["LU", "Cholesky", "columns_layout", "condition", "not_positive", "permutation", "solve"]

_SHORT = {"pos": "positive definite", "sym": "symmetric", "her": "hermitian", "gen": "general"}


def _singular(text: str) -> BaseException:
    """Return the exception that every rank raises for a singular matrix."""
    return agreed(np.linalg.LinAlgError(text))


def permutation(pivots: np.ndarray, m: int) -> np.ndarray:
    """Return the permutation of m rows that interchanging row i with row pivots[i], in turn, comes to: A[perm] = L U."""
    perm = np.arange(m, dtype=np.int64)
    for i, p in enumerate(pivots):
        perm[i], perm[p] = perm[p], perm[i]
    return perm


def not_positive(info: int) -> str:
    """Return LAPACK's message for a leading minor that is not positive definite."""
    return f"{info}-th leading minor of the array is not positive definite: the matrix is singular or indefinite"


def _laid_out(b: TiledArray, layout: Layout, solve: Callable[[TiledArray], None]) -> None:
    """Solve in place for right-hand sides that lie in any layout, in the one that the algorithm takes. Collective."""
    if b.layout == layout:
        solve(b)
        return
    x = redistribute(b, layout)
    solve(x)
    b.local[...] = redistribute(x, b.layout).local


class LU:
    """A = P L U, factored in place; raises LinAlgError where a pivot is exactly zero."""

    def __init__(self, a: TiledArray) -> None:
        self.a = a
        if a.world.size == 1:
            self.lu, self.piv, info = _alone.lu(a.local)
        else:
            self.piv, info = _lu.getrf(a)
        if info:
            raise _singular(f"Matrix is singular: pivot {info} is exactly zero.")

    def solve(self, b: TiledArray, trans: str = "N") -> None:
        """B := op(A)^-1 B."""
        if b.world.size == 1:
            b.local[...] = _alone.lu_solve(self.lu, self.piv, b.local, trans)
        else:
            layout = trsm_layout(self.a.layout, b.shape[1], trans)
            _laid_out(b, layout, lambda x: _lu.getrs(self.a, self.piv, x, trans))

    def alone_condition(self, norm: float) -> float:
        """Return LAPACK's estimate of 1/condition on one device."""
        return _alone.routine("gecon", self.lu)(self.lu, norm)[0]


class Cholesky:
    """A = L L^H or U^H U, factored in place in the named triangle; raises LinAlgError where A is not positive definite."""

    def __init__(self, a: TiledArray, lower: bool) -> None:
        self.a, self.lower = a, lower
        if a.world.size == 1:
            self.c, info = _alone.cholesky(a.local, lower, False)
        else:
            info = _cholesky.potrf(a, lower)
        if info:
            raise _singular(not_positive(info))

    def solve(self, b: TiledArray, trans: str = "N") -> None:
        """B := A^-1 B, which is A^-H B."""
        if b.world.size == 1:
            b.local[...] = _alone.cho_solve(self.c, b.local, self.lower)
        else:
            layout = trsm_layout(self.a.layout, b.shape[1], "N")
            _laid_out(b, layout, lambda x: _cholesky.potrs(self.a, x, self.lower))

    def alone_condition(self, norm: float) -> float:
        """Return LAPACK's estimate of 1/condition on one device."""
        return _alone.routine("pocon", self.c)(self.c, norm, uplo="L" if self.lower else "U")[0]


class _SymmetricIndefinite:
    """P A P^T = L D L^T or L D L^H, factored in place in the named triangle; LinAlgError where D is singular.

    The upper triangle of A is the lower one of A^T, which is A, or conj(A) where A is Hermitian.
    """

    def __init__(self, a: TiledArray, lower: bool, hermitian: bool) -> None:
        self.a = a if lower else a.transpose((1, 0))
        self.hermitian = hermitian
        self.mirrored = hermitian and not lower and a.dtype.kind == "c"
        self.factors = _ldl.sytrf(self.a, hermitian)
        if self.factors.info:
            raise _singular(f"Matrix is singular: block {self.factors.info} of D is exactly zero.")

    def solve(self, b: TiledArray, trans: str = "N") -> None:
        """B := A^-1 B, or A^-H B."""
        conjugate = self.mirrored != (trans == "C" and not self.hermitian and b.dtype.kind == "c")
        if conjugate:
            np.conjugate(b.local, out=b.local)
        layout = trsm_layout(self.a.layout, b.shape[1], "N")
        _laid_out(b, layout, lambda x: _ldl.sytrs(self.a, self.factors, x, self.hermitian))
        if conjugate:
            np.conjugate(b.local, out=b.local)


@dataclass
class _Triangular:
    """A triangular matrix as its own factor."""

    a: TiledArray
    lower: bool

    def solve(self, b: TiledArray, trans: str = "N") -> None:
        """B := op(A)^-1 B."""
        if b.world.size == 1:
            b.local[...] = _alone.solve_triangle(self.a.local, b.local, self.lower, trans)
            return
        layout = trsm_layout(self.a.layout, b.shape[1], trans)
        _laid_out(b, layout, lambda x: _triangular.trsm(self.a, x, self.lower, trans, False))


def condition(factor, a: TiledArray, norm: float) -> float:
    """Return an estimate of the reciprocal condition of A, of one-norm `norm`, from its factors. Collective."""
    world, n = a.world, a.shape[0]
    if world.size == 1 and hasattr(factor, "alone_condition"):
        return float(factor.alone_condition(norm))

    def apply(trans: str):
        layout = a.layout.replace(shape=(n, 1), dims=(None, None)) if world.size == 1 else trsm_layout(a.layout, 1, trans)
        everywhere = Layout.replicated((n, 1), ProcessGrid.of((world.size,)))

        def solve(x: np.ndarray) -> np.ndarray:
            b = TiledArray.empty(layout, a.dtype, world)
            if layout.holds(world.rank):
                b.local[...] = x[layout.indices(0, world.rank), np.newaxis][:, : b.local.shape[1]]
            factor.solve(b, trans)
            return redistribute(b, everywhere).local[:, 0]

        return solve

    return reciprocal_condition(norm, n, a.dtype, apply("N"), apply("C"))


def solve(a: TiledArray, b: TiledArray, assume: str | None, lower: bool) -> float:
    """B := A^-1 B; A is overwritten. Collective over the world.

    Returns
    -------
    rcond : float
        An estimate of the reciprocal condition; the same on every rank.
    """
    if 0 in b.shape:
        return 1.0
    kind = _SHORT.get(assume, assume) if assume else structure(a)
    if kind == "diagonal":
        return _divide_by_diagonal(a, b)
    if kind in ("upper triangular", "lower triangular"):
        return _solve_triangular(a, b, kind == "lower triangular")
    if kind in ("banded", "tridiagonal"):
        below, above = (1, 1) if kind == "tridiagonal" else bandwidth(a)
        if kind == "tridiagonal" or below + above + 1 <= max(THIN * a.shape[0], 3):
            return _solve_band(a, b, below, above)
        kind = "general"
    if kind == "general":
        norm = norm_one(a)
        factor = LU(a)
    elif assume is None:
        norm = norm_one(a)
        lower, definite = _definite(a, kind == "hermitian" or a.dtype.kind == "f")
        if definite is None and a.world.size == 1:
            return _indefinite_alone(a, b, lower, kind == "hermitian", norm)
        factor = definite or _SymmetricIndefinite(a, lower, kind == "hermitian" or a.dtype.kind == "f")
    else:
        norm = norm_one(a, "L" if lower else "U", symmetric=True)
        if kind == "positive definite":
            factor = Cholesky(a, lower)
        elif a.world.size == 1:
            return _indefinite_alone(a, b, lower, kind == "hermitian", norm)
        else:
            factor = _SymmetricIndefinite(a, lower, kind == "hermitian")
    factor.solve(b)
    return condition(factor, a, norm)


def _definite(a: TiledArray, hermitian: bool) -> tuple[bool, Cholesky | None]:
    """Factor a matrix whose two triangles are known to agree as positive definite where its diagonal allows.

    Returns the triangle that holds it still: an attempt that fails has changed the lower triangle and the diagonal, which is
    put back, but not the upper one.
    """
    main = diagonal(a)
    if not hermitian or not (main.real > 0).all():
        return True, None
    try:
        return True, Cholesky(a, True)
    except np.linalg.LinAlgError:
        set_diagonal(a, main)
        return False, None


def _indefinite_alone(a: TiledArray, b: TiledArray, lower: bool, hermitian: bool, norm: float) -> float:
    x, rcond, info = _alone.solve_indefinite(a.local, b.local, lower, hermitian, norm)
    if info:
        raise _singular(f"Matrix is singular: block {info} of D is exactly zero.")
    b.local[...] = x
    return rcond


def _divide_by_diagonal(a: TiledArray, b: TiledArray) -> float:
    d = diagonal(a)
    size = np.abs(d)
    if size.min() == 0:
        raise _singular(f"Matrix is singular: element {int(size.argmin())} of its diagonal is zero.")
    if b.layout.holds(b.world.rank):
        b.local[...] /= d[b.layout.indices(0, b.world.rank), np.newaxis]
    return float(size.min() / size.max())


def _solve_triangular(a: TiledArray, b: TiledArray, lower: bool) -> float:
    zero = np.flatnonzero(diagonal(a) == 0)
    if len(zero):
        raise _singular(f"Matrix is singular: element {zero[0]} of the diagonal of a triangle is zero.")
    norm = norm_one(a, "L" if lower else "U")
    factor = _Triangular(a, lower)
    factor.solve(b)
    return condition(factor, a, norm)


def _solve_band(a: TiledArray, b: TiledArray, below: int, above: int) -> float:
    """Every rank factors the band, which is small, and solves for its share of the right-hand sides."""
    n = a.shape[0]
    below, above = min(below, n - 1), min(above, n - 1)
    ab = band(a, below, above)
    columns = redistribute(b, columns_layout(b.shape, b.world.size))
    norm = float(np.abs(ab).sum(0).max())
    gbtrf, gbtrs = (_alone.routine(stem, ab) for stem in ("gbtrf", "gbtrs"))
    work = np.zeros((2 * below + above + 1, n), ab.dtype, order="F")
    work[below:] = ab
    lu, piv, info = gbtrf(work, below, above, overwrite_ab=True)
    if info:
        raise _singular(f"Matrix is singular: pivot {info} is exactly zero.")
    if columns.local.size:
        columns.local[...] = gbtrs(lu, below, above, columns.local, piv)[0]
    b.local[...] = redistribute(columns, b.layout).local
    solves = (lambda x, k=k: gbtrs(lu, below, above, x[:, np.newaxis], piv, trans=k)[0][:, 0] for k in (0, 2))
    rcond = np.array([reciprocal_condition(norm, n, ab.dtype, *solves)], np.float64)
    a.world.comm.allreduce(rcond, "min")  # the ranks' processors may round differently
    return float(rcond[0])


def columns_layout(shape: tuple[int, ...], size: int) -> Layout:
    """Return the layout in which every rank has whole columns."""
    return Layout(shape, ProcessGrid.of((size,)), (None, Cyclic(0, max(1, -(-shape[1] // size)))))
