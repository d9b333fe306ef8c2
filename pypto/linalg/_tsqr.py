"""QR of a tall matrix whose rows are divided over some ranks: local factorisations, then a binary tree of small ones.

Every rank factors its own rows; the triangles are stacked and factored again, pairwise up a tree, and Q is formed on the
way down. Within a rank the same is done by pieces of rows that stay in cache. Messages: 2 log2(p) of n^2 elements.

Source: J. Demmel, L. Grigori, M. Hoemmen, J. Langou, Communication-optimal parallel and sequential QR and LU factorizations
(2012); T from V: C. Puglisi, Modification of the Householder method based on the compact WY representation (1992).
"""

import numpy as np

from pypto.comm.comm import Comm
from pypto.device.cpu import CpuDevice

__all__ = ["block_reflector", "factor", "reflectors", "tsqr"]

#: Rows of a piece: 32 columns of it, LAPACK's inner panel, stay in the second-level cache.
PIECE = 2048
#: Columns that are factored by LAPACK; wider blocks are halved, so that most of the work is products.
LEAF = 48


def reflectors(block: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Return the Householder vectors stored below the diagonal of `block`, with their unit diagonal and zeros above."""
    k = min(block.shape)
    v = np.empty((block.shape[0], k), block.dtype, order="F") if out is None else out
    v[k:] = block[k:, :k]
    v[:k] = np.tril(block[:k, :k], -1)
    v[np.arange(k), np.arange(k)] = 1
    return v


def block_reflector(device: CpuDevice, v: np.ndarray, tau: np.ndarray, comm: Comm | None = None) -> np.ndarray:
    """Return upper triangular T with H_1 H_2 ... H_k = I - V T V^H; the rows of V are divided over `comm`.

    The product is unitary, so T^-1 + T^-H = V^H V: T^-1 is the upper triangle of V^H V with 1/tau on the diagonal.
    """
    k = v.shape[1]
    inverse = np.zeros((k, k), v.dtype, order="F")
    device.gemm(1.0, v, v, 0.0, inverse, "C", "N")
    if comm is not None:
        comm.allreduce(inverse)
    nothing = tau == 0  # H = I
    inverse[nothing] = 0
    inverse[:, nothing] = 0
    np.fill_diagonal(inverse, 1 / np.where(nothing, 1, tau))
    t = np.eye(k, dtype=v.dtype, order="F")
    device.trsm("L", "U", "N", "N", 1.0, inverse, t)
    t[nothing, nothing] = 0
    return t


def factor(device: CpuDevice, a: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Factor a block in place by halves of its columns; fill v (as ``reflectors``) and return T of its k = min(m, n) columns.

    With Q = Q1 Q2, [V1 V2] and T = [T1, -T1 V1^H V2 T2; 0, T2].
    """
    k = min(a.shape)
    half = k if k < a.shape[1] else k // 2 if k > LEAF else 0
    if half == 0:
        tau = np.empty(k, a.dtype)
        device.geqrt(a, tau)
        return block_reflector(device, reflectors(a, v), tau)
    left, right = a[:, :half], a[:, half:]
    t1, v1 = factor(device, left, v[:, :half]), v[:, :half]
    _reflect(device, v1, t1, right)
    if half == k:
        return t1
    t2, v2 = factor(device, right[half:], v[half:, half:]), v[half:, half:]
    v[:half, half:] = 0
    t = np.zeros((k, k), a.dtype, order="F")
    t[:half, :half], t[half:, half:] = t1, t2
    cross, product = np.empty((half, k - half), a.dtype, order="F"), np.empty((half, k - half), a.dtype, order="F")
    device.gemm(1.0, v1[half:], v2, 0.0, cross, "C", "N")
    device.gemm(-1.0, t1, cross, 0.0, product)
    device.gemm(1.0, product, t2, 0.0, t[:half, half:])
    return t


def _reflect(device: CpuDevice, v: np.ndarray, t: np.ndarray, c: np.ndarray) -> None:
    """C -= V T^H V^H C."""
    w, x = (np.empty((v.shape[1], c.shape[1]), c.dtype, order="F") for _ in range(2))
    device.gemm(1.0, v, c, 0.0, w, "C", "N")
    device.gemm(1.0, t, w, 0.0, x, "C", "N")
    device.gemm(-1.0, v, x, 1.0, c)


class _Factor:
    """QR of one block; `r` is its triangle (trapezium, of a block with fewer rows than columns)."""

    def __init__(self, device: CpuDevice, block: np.ndarray) -> None:
        self.device, self.block = device, block
        k = min(block.shape)
        self.v = np.empty((len(block), k), block.dtype, order="F")
        self.t = factor(device, block, self.v)
        self.r = np.triu(block[:k])

    def form(self, c: np.ndarray) -> None:
        """Block := Q c, c having as many rows as `r`: [c; 0] - V T (V1^H c)."""
        k = len(self.r)
        w, x = np.empty_like(c), np.empty_like(c)
        self.device.gemm(1.0, self.v[:k], c, 0.0, w, "C", "N")
        self.device.gemm(1.0, self.t, w, 0.0, x)
        self.device.gemm(-1.0, self.v, x, 0.0, self.block)
        self.block[:k] += c


class _Stack:
    """QR of a tall block by pieces of its rows, in place."""

    def __init__(self, device: CpuDevice, block: np.ndarray) -> None:
        rows = max(PIECE, 8 * block.shape[1])
        self.block = block
        self.parts = [_Factor(device, block[i : i + rows]) for i in range(0, max(len(block), 1), rows)]
        self.top: _Stack | None = None
        if len(self.parts) > 1:
            self.top = _Stack(device, np.asfortranarray(np.concatenate([p.r for p in self.parts])))
        self.r = self.top.r if self.top else self.parts[0].r

    def form(self, c: np.ndarray) -> None:
        """Block := Q c."""
        if self.top is None:
            self.parts[0].form(c)
            return
        self.top.form(c)
        begin = 0
        for part in self.parts:
            part.form(np.asfortranarray(self.top.block[begin : begin + len(part.r)]))
            begin += len(part.r)


def tsqr(device: CpuDevice, comm: Comm, block: np.ndarray, rows: list[int], root: int, form: bool = True) -> np.ndarray | None:
    """Factor the tall matrix whose rows rank i of `comm` has rows[i] of, all together at least as many as columns.

    Collective over `comm`. `block` is F-ordered; it becomes this rank's rows of Q (n columns) where `form` asks for Q.

    Returns
    -------
    r : (n, n) array
        On `root`; None elsewhere.
    """
    n, size = block.shape[1], comm.size
    me = (comm.rank - root) % size
    counts = [rows[(root + i) % size] for i in range(size)]
    local = _Stack(device, block)
    r, merges, step = local.r, [], 1
    while step < size and me % (2 * step) == 0:
        if me + step < size:
            other = np.empty((min(n, sum(counts[me + step : me + 2 * step])), n), block.dtype, order="F")
            comm.recv(other, (comm.rank + step) % size)
            merges.append((_Factor(device, np.asfortranarray(np.concatenate([r, other]))), len(r), step))
            r = merges[-1][0].r
        step *= 2
    parent = (comm.rank - step) % size
    if me:
        comm.send(np.asfortranarray(r), parent)
    if form:
        c = np.eye(n, dtype=block.dtype, order="F") if me == 0 else np.empty((len(r), n), block.dtype, order="F")
        if me:
            comm.recv(c, parent)
        for factor, mine, step in reversed(merges):
            factor.form(c)
            comm.send(np.asfortranarray(factor.block[mine:]), (comm.rank + step) % size)
            c = np.asfortranarray(factor.block[:mine])
        local.form(c)
    return r if me == 0 else None
