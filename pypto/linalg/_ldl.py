"""Factorisation of a symmetric or Hermitian indefinite matrix with diagonal pivoting, and the solve that follows it.

    P A P^T = L D L^H   (or L D L^T),   L unit lower triangular, D of blocks of order one and two.

Left-looking within a panel, right-looking between panels. Every rank has all rows of the panel's L and W = L D, so that a
column is brought up to date by whoever owns its elements, one reduction gives the column to all, and all of them decide alike
which pivot it takes. The trailing update A := A - L W^H, lower triangle only, then needs no message.

The pivots are those of Bunch and Kaufman: an element of the diagonal that is not too small against its column, or else one
of the column in which the largest element of this one lies, or else a block of order two.

Source: J. Bunch, L. Kaufman, Some stable methods for calculating inertia and solving symmetric linear systems (1977);
LAPACK xLASYF, xSYTRS.
"""

from dataclasses import dataclass

import numpy as np

from pypto.linalg._tiled import Tiles, exchange_rows
from pypto.linalg._triangular import trsm, trsm_layout
from pypto.tiles.redistribute import redistribute
from pypto.tiles.tiled import TiledArray

__all__ = ["SymmetricFactors", "sytrf", "sytrs"]

#: Columns of a panel: few, since a column is brought up to date at the rate of memory.
PANEL = 32
#: The bound on the growth of elements is least with this number: (1 + sqrt(17)) / 8.
ALPHA = (1 + 17**0.5) / 8


@dataclass
class SymmetricFactors:
    """What ``sytrf`` finds beside L: A[perm][:, perm] = L D L^H with `d` on D's diagonal and `e` below it.

    The same on every rank of the grid (empty elsewhere); `info` on every rank of the world: 0, or 1 + the index of the first
    column in which there is nothing but zeros.
    """

    perm: np.ndarray
    d: np.ndarray
    e: np.ndarray
    info: int = 0


def sytrf(a: TiledArray, hermitian: bool) -> SymmetricFactors:
    """A := L below its diagonal, in place, from its lower triangle; the upper one is neither read nor written.

    Cost: n^3/3 flops; every rank receives two to four vectors of n elements a column.
    """
    world = a.world
    made = SymmetricFactors(np.zeros(0, np.int64), np.zeros(0, a.dtype), np.zeros(0, a.dtype))
    if a.layout.holds(world.rank):
        with np.errstate(all="ignore"):
            made = _Factorisation(a, hermitian and a.dtype.kind == "c").run()
    if world.size > a.layout.grid.size:
        info = np.array([made.info], np.int64)
        world.comm.allreduce(info, "max")
        made.info = int(info[0])
    return made


class _Factorisation:
    """The state of the factorisation on one rank; columns are counted over the whole matrix."""

    def __init__(self, a: TiledArray, conjugate: bool) -> None:
        self.t, self.conjugate, self.real = Tiles(a), conjugate, conjugate or a.dtype.kind == "f"
        self.comm = a.world.comm.sub(a.layout.grid.ranks)
        self.n = a.shape[0]
        self.rows, self.cols = (a.layout.indices(k, a.world.rank) for k in (0, 1))
        self.out = SymmetricFactors(np.arange(self.n), np.zeros(self.n, a.dtype), np.zeros(max(self.n - 1, 0), a.dtype))

    def run(self) -> SymmetricFactors:
        first = 0
        while first < self.n:
            first += self._panel(first)
        return self.out

    def _panel(self, first: int) -> int:
        """Factor the columns from `first` on, and update what is right of them; return their number."""
        n, width = self.n, min(PANEL, self.n - first)
        dtype = self.out.d.dtype
        self.l, self.w = np.zeros((n, width), dtype), np.zeros((n, width), dtype)
        before = self.out.perm.copy()
        k = first
        while k < n and (k - first < width - 1 or width < PANEL):
            k += self._column(k, k - first)
        done = k - first
        self._write(first, done)
        self._interchange_left(first, before)
        self._update(first, done)
        return done

    def _column(self, k: int, c: int) -> int:
        """Factor column k, the panel's c-th, or k and k+1; return how many."""
        original, w1 = self._fetch(k, k, c)
        beside = _size(w1[k + 1 :])
        imax = k + 1 + int(beside.argmax()) if len(beside) else k
        largest = float(beside[imax - k - 1]) if len(beside) else 0.0
        here = float(_size(w1[k : k + 1])[0])
        if not max(here, largest) > 0:  # nothing but zeros, or NaN, which stay
            self.out.info = self.out.info or k + 1
            self._accept(k, c, w1, 1)
            return 1
        kp, step, w2 = k, 1, None
        if here < ALPHA * largest:
            other, w2 = self._fetch(imax, k, c)
            size = _size(w2[k:])
            size[imax - k] = 0
            across = float(size.max())
            if here * across >= ALPHA * largest * largest:
                pass
            elif float(_size(w2[imax : imax + 1])[0]) >= ALPHA * across:
                kp, w1 = imax, w2
            else:
                kp, step = imax, 2
        kk = k + step - 1
        if kp != kk:
            moving = original if step == 1 else self._fetch(kk, k, c)[0]
            self._move(moving, kk, kp)
            for v in (self.l, self.w, self.out.perm, w1, *([w2] if step == 2 else [])):
                v[[kk, kp]] = v[[kp, kk]]
        if step == 1:
            self._accept(k, c, w1, w1[k])
            return 1
        self._accept_two(k, c, w1, w2)
        return 2

    def _fetch(self, j: int, k: int, c: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rows k and below of column j of the whole symmetric matrix: as it lies there, and brought up to date.

        Rows above k are zero. Collective over the grid.
        """
        both = np.zeros((2, self.n), self.out.d.dtype)
        local, factor = self.t.local, self.w[j, :c].conj() if self.conjugate else self.w[j, :c]
        jl = int(np.searchsorted(self.cols, j))
        if jl < len(self.cols) and self.cols[jl] == j:
            il = int(np.searchsorted(self.rows, j))
            mine = self.rows[il:]
            both[0, mine] = local[il:, jl]
            both[1, mine] = local[il:, jl] - self.l[mine, :c] @ factor
        il = int(np.searchsorted(self.rows, j))
        if j > k and il < len(self.rows) and self.rows[il] == j:
            cut = slice(*np.searchsorted(self.cols, [k, j]))
            mine = self.cols[cut]
            values = local[il, cut].conj() if self.conjugate else local[il, cut]
            both[0, mine] = values
            both[1, mine] = values - self.l[mine, :c] @ factor
        self.comm.allreduce(both)
        if self.real and both.dtype.kind == "c":
            both[:, j] = both[:, j].real
        return both[0], both[1]

    def _move(self, column: np.ndarray, kk: int, kp: int) -> None:
        """Put column kk of the trailing matrix, as it was, in the place of column kp > kk."""
        local = self.t.local
        il = int(np.searchsorted(self.rows, kp))
        if il < len(self.rows) and self.rows[il] == kp:
            cut = slice(*np.searchsorted(self.cols, [kk + 1, kp]))
            values = column[self.cols[cut]]
            local[il, cut] = values.conj() if self.conjugate else values
        jl = int(np.searchsorted(self.cols, kp))
        if jl < len(self.cols) and self.cols[jl] == kp:
            il = int(np.searchsorted(self.rows, kp))
            local[il:, jl] = np.where(self.rows[il:] == kp, column[kk], column[self.rows[il:]])

    def _accept(self, k: int, c: int, w: np.ndarray, divisor) -> None:
        """Take a pivot of order one: l = w / d, with some other divisor where d is zero and so is w."""
        self.w[k:, c], self.out.d[k] = w[k:], w[k]
        self.l[k, c] = 1
        self.l[k + 1 :, c] = w[k + 1 :] / divisor

    def _accept_two(self, k: int, c: int, w1: np.ndarray, w2: np.ndarray) -> None:
        """Take a pivot of order two: [l1 l2] = [w1 w2] D^-1, scaled by the element below the diagonal, the largest."""
        d11, d21, d22 = w1[k], w1[k + 1], w2[k + 1]
        d12 = d21.conj() if self.conjugate else d21
        self.out.d[k : k + 2], self.out.e[k] = (d11, d22), d21
        self.w[k:, c], self.w[k:, c + 1] = w1[k:], w2[k:]
        self.w[k, c + 1] = d12
        a, b = d11 / d12, d22 / d21  # det D = d12 d21 (a b - 1)
        scale = 1 / (a * b - 1)
        v1, v2 = w1[k + 2 :], w2[k + 2 :]
        self.l[k + 2 :, c] = scale * (b * (v1 / d12) - v2 / d12)
        self.l[k + 2 :, c + 1] = scale * (a * (v2 / d21) - v1 / d21)
        self.l[k, c] = self.l[k + 1, c + 1] = 1

    def _write(self, first: int, done: int) -> None:
        """Store the panel's L below the diagonal."""
        cut = slice(*np.searchsorted(self.cols, [first, first + done]))
        for jl in range(cut.start, cut.stop):
            j = self.cols[jl]
            il = int(np.searchsorted(self.rows, j + 1))
            self.t.local[il:, jl] = self.l[self.rows[il:], j - first]

    def _interchange_left(self, first: int, before: np.ndarray) -> None:
        """Interchange the rows of the earlier panels' L as this panel has interchanged them. Collective."""
        moved = np.flatnonzero(self.out.perm != before)
        at = np.empty(self.n, np.int64)
        at[before] = np.arange(self.n)
        left = self.t.local[:, : int(np.searchsorted(self.cols, first))]
        exchange_rows(self.t, left, np.ascontiguousarray(at[self.out.perm[moved]]), moved)

    def _update(self, first: int, done: int) -> None:
        """A := A - L W^H in the lower triangle right of the panel, tile column by tile column."""
        t, next_column = self.t, first + done
        left = np.asfortranarray(self.l[self.rows, :done])
        right = self.w[self.cols, :done]
        right = np.asfortranarray(right.conj() if self.conjugate else right)
        begin = int(np.searchsorted(self.cols, next_column))
        for j0 in range(begin, len(self.cols), t.nb):
            j1 = min(j0 + t.nb, len(self.cols))
            top = int(np.searchsorted(self.rows, self.cols[j0]))
            t.device.gemm(-1.0, left[top:], right[j0:j1], 1.0, t.local[top:, j0:j1], "N", "T")


def _size(v: np.ndarray) -> np.ndarray:
    """Return LAPACK's |re| + |im|, with NaN as nothing."""
    size = np.abs(v) if v.dtype.kind == "f" else np.abs(v.real) + np.abs(v.imag)
    return np.where(np.isnan(size), 0, size)


def sytrs(a: TiledArray, factors: SymmetricFactors, b: TiledArray, hermitian: bool) -> None:
    """B := A^-1 B from ``sytrf``'s factors; B in the layout of ``trsm_layout`` for "N". Collective over the world."""
    trans = "C" if hermitian else "T"
    inside = b.layout.holds(b.world.rank) and 0 not in b.shape
    moved = np.flatnonzero(factors.perm != np.arange(len(factors.perm)))
    if inside:
        exchange_rows(Tiles(b), b.local, np.ascontiguousarray(factors.perm[moved]), moved)
    trsm(a, b, True, "N", True)
    if inside:
        _solve_blocks(b, factors, hermitian)
    x = redistribute(b, trsm_layout(a.layout, b.shape[1], trans))
    x = x.copy() if x is b else x
    trsm(a, x, True, trans, True)
    b.local[...] = redistribute(x, b.layout).local
    if inside:
        exchange_rows(Tiles(b), b.local, moved, np.ascontiguousarray(factors.perm[moved]))


def _solve_blocks(b: TiledArray, factors: SymmetricFactors, hermitian: bool) -> None:
    """B := D^-1 B: every row is a combination of itself and its partner in a block of order two."""
    d, e = factors.d, factors.e
    k = np.flatnonzero(e != 0)
    one = np.ones(len(d), bool)
    one[k] = one[k + 1] = False
    own, other = np.zeros_like(d), np.zeros_like(d)
    own[one] = 1 / d[one]
    d21, d12 = e[k], e[k].conj() if hermitian else e[k]
    x, y = d[k] / d12, d[k + 1] / d21
    scale = 1 / (x * y - 1)
    own[k], other[k] = scale * (y / d12), -scale / d21
    own[k + 1], other[k + 1] = scale * (x / d21), -scale / d12
    partner = b.copy()
    exchange_rows(Tiles(partner), partner.local, np.concatenate([k, k + 1]), np.concatenate([k + 1, k]))
    rows = b.layout.indices(0, b.world.rank)
    b.local *= own[rows, np.newaxis]
    b.local += other[rows, np.newaxis] * partner.local
