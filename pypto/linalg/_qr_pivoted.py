"""QR factorisation with column pivoting: the next column is the one of largest norm among what is left of them.

    A P = Q R,    |r_kk| >= |r_k+1,k+1|.

Half of the work is a product of the trailing matrix with one vector a column, for the choice of the next; the other half is
kept for products of matrices: within a panel the trailing matrix stays as it is and A - V F^H stands for it. The norms are
brought up to date by what each step takes from them. Where so much has gone that rounding governs what is left, the panel
ends and they are computed anew.

Source: G. Quintana-Orti, X. Sun, C. Bischof, A BLAS-3 version of the QR factorization with column pivoting (1998); Z. Drmac,
Z. Bujanovic, On the failure of rank-revealing QR factorization software (2008); LAPACK xLAQPS.
"""

import numpy as np

from pypto.linalg._tiled import Tiles
from pypto.tiles.tiled import TiledArray

__all__ = ["geqp3"]

#: Most columns of a panel.
PANEL = 32


def geqp3(a: TiledArray) -> tuple[np.ndarray, np.ndarray]:
    """A := R on and above the diagonal and the Householder vectors below it, columns interchanged, in place.

    Returns
    -------
    tau : array of min(m, n)
    jpvt : int64 array of n
        Column j of A P is column jpvt[j] of A. Both are the same on every rank of the grid (empty elsewhere).

    Notes
    -----
    Cost: 2 m n^2 - 2/3 n^3 flops for m >= n, half of them at the rate of memory; six small collectives a column.
    """
    if not a.layout.holds(a.world.rank):
        return np.zeros(0, a.dtype), np.zeros(0, np.int64)
    return _Factorisation(a).run()


class _Factorisation:
    def __init__(self, a: TiledArray) -> None:
        self.t, self.local = Tiles(a), a.local
        self.rows, self.cols = (a.layout.indices(k, a.world.rank) for k in (0, 1))
        m, n = a.shape
        self.steps = min(m, n)
        self.tau = np.zeros(self.steps, a.dtype)
        self.jpvt = np.arange(n)
        real = self.tau.real.dtype
        #: Norms of what is left of the local columns, and their values when they were last computed.
        self.norms, self.computed = np.zeros(len(self.cols), real), np.zeros(len(self.cols), real)
        self.limit = np.sqrt(np.finfo(real).eps)

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        self._measure(0, np.ones(len(self.cols), bool))
        first = 0
        with np.errstate(all="ignore"):
            while first < self.steps:
                first = self._panel(first)
        return self.tau, self.jpvt

    def _measure(self, k: int, which: np.ndarray) -> None:
        """Compute the norms of some local columns from row k on. Collective over the grid column."""
        top = int(np.searchsorted(self.rows, k))
        mine = np.zeros(len(self.cols), self.norms.dtype)
        for j in np.flatnonzero(which):
            mine[j] = np.linalg.norm(self.local[top:, j])
        every = self.t.col_comm.allgather(mine)
        largest = every.max(axis=0, initial=0.0)
        scale = np.where((largest > 0) & np.isfinite(largest), largest, 1)
        whole = scale * np.sqrt(((every / scale) ** 2).sum(axis=0))
        self.norms[which] = self.computed[which] = whole[which]

    def _panel(self, first: int) -> int:
        """Factor columns from `first` on until the panel is full or a norm is lost; update the rest; return where it ends."""
        t, end = self.t, min(first + PANEL, self.steps)
        width = end - first
        dtype = self.tau.dtype
        self.first = first
        self.v = np.zeros((len(self.rows), width), dtype, order="F")
        self.f = np.zeros((len(self.cols), width), dtype, order="F")
        self.lost = np.zeros(len(self.cols), bool)
        k = first
        while k < end:
            if not self._choose(k):
                break
            self._reflect(k)
            k += 1
        done = k - first
        top, left = int(np.searchsorted(self.rows, k)), int(np.searchsorted(self.cols, k))
        f = self.f[left:, :done]
        f = np.asfortranarray(f.conj() if f.dtype.kind == "c" else f)
        t.device.gemm(-1.0, self.v[top:, :done], f, 1.0, self.local[top:, left:], "N", "T")
        self._measure(k, self.lost)
        return k

    def _choose(self, k: int) -> bool:
        """Bring the column of largest norm to place k; False, on every rank, where some rank's norms are lost."""
        left = int(np.searchsorted(self.cols, k))
        best = np.array([-1.0, 0.0, float(self.lost.any())])
        if left < len(self.cols):
            norms = np.where(np.isnan(self.norms[left:]), np.inf, self.norms[left:])
            j = int(norms.argmax())
            best[:2] = norms[j], self.cols[left + j]
        every = self.t.row_comm.allgather(best)
        if every[:, 2].any():
            return False
        _, pivot = min((-size, int(at)) for size, at, _ in every)
        if pivot != k:
            self._interchange(k, pivot)
        return True

    def _interchange(self, k: int, pivot: int) -> None:
        """Interchange columns k and `pivot`, and what belongs to them."""
        self.jpvt[[k, pivot]] = self.jpvt[[pivot, k]]
        t = self.t
        a, b = t.owner_col(k // t.nb), t.owner_col(pivot // t.nb)
        if t.col not in (a, b):
            return
        at = {j: int(np.searchsorted(self.cols, j)) for j in (k, pivot)}
        if a == b:
            i, j = at[k], at[pivot]
            for x in (self.local.T, self.f, self.norms, self.computed):
                x[[i, j]] = x[[j, i]]
            return
        j, peer = (at[k], b) if t.col == a else (at[pivot], a)
        mine = np.concatenate([self.local[:, j], self.f[j], self.norms[j : j + 1], self.computed[j : j + 1]])
        theirs = np.empty_like(mine)
        requests = [t.row_comm.irecv(theirs, peer), t.row_comm.isend(mine, peer)]
        for request in requests:
            request.wait()
        m, width = len(self.rows), self.f.shape[1]
        self.local[:, j], self.f[j] = theirs[:m], theirs[m : m + width]
        self.norms[j], self.computed[j] = theirs[m + width :].real

    def _reflect(self, k: int) -> None:
        """Make the reflection of column k, and F and the norms what they are after it."""
        t, c = self.t, k - self.first
        top, below = (int(x) for x in np.searchsorted(self.rows, [k, k + 1]))
        left, right = (int(x) for x in np.searchsorted(self.cols, [k, k + 1]))
        part = np.zeros(len(self.rows) - top + 1, self.tau.dtype)
        if right > left:  # column k is here
            column = self.local[top:, left]
            column -= self.v[top:, :c] @ self.f[left, :c].conj()
            part[-1] = self._householder(column, below - top)
            part[:-1] = column
            if below > top:
                part[0] = 1
        t.row_comm.bcast(part, t.owner_col(k // t.nb))
        self.tau[k], self.v[top:, c] = part[-1], part[:-1]
        v = self.v[top:, c]
        # F[j, c] = tau (A[:, j]^H v - F[j, :c] V[:, :c]^H v), for what A - V F^H stands for.
        products = np.concatenate([self.local[top:, right:].conj().T @ v, self.v[top:, :c].conj().T @ v])
        t.col_comm.allreduce(products)
        rest = len(self.cols) - right
        self.f[right:, c] = self.tau[k] * (products[:rest] - self.f[right:, :c] @ products[rest:])
        row = np.zeros(rest, self.tau.dtype)
        if below > top:
            self.local[top, right:] -= self.f[right:, : c + 1].conj() @ self.v[top, : c + 1]
            row[:] = self.local[top, right:]
        t.col_comm.bcast(row, t.owner_row(k // t.nb))
        self._downdate(right, np.abs(row))

    def _householder(self, x: np.ndarray, head: int) -> complex:
        """Replace the column by its reflection, beta on top and v below; return tau. Collective over the grid column."""
        mine = np.zeros(3, np.float64)
        if head:
            mine[:2] = x[0].real, x[0].imag
        mine[2] = np.linalg.norm(x[head:])
        every = self.t.col_comm.allgather(mine)
        alpha = complex(every[:, 0].sum(), every[:, 1].sum())
        norm = float(np.hypot.reduce(every[:, 2]))
        if norm == 0 and alpha.imag == 0:
            return 0.0
        beta = -np.copysign(np.hypot(abs(alpha), norm), alpha.real)
        if head:
            x[0] = beta
        difference = alpha - beta if x.dtype.kind == "c" else (alpha - beta).real
        x[head:] /= difference
        tau = (beta - alpha) / beta
        return tau if x.dtype.kind == "c" else tau.real

    def _downdate(self, right: int, taken: np.ndarray) -> None:
        """Take the new row of R from the norms of the columns from local column `right` on."""
        norms, computed = self.norms[right:], self.computed[right:]
        live = norms > 0
        left = np.maximum(1 - (taken / np.where(live, norms, 1)) ** 2, 0)
        shrunk = left * (norms / np.where(live, computed, 1)) ** 2
        self.lost[right:] |= live & (shrunk <= self.limit)
        norms[live] *= np.sqrt(left[live])
