"""Triangular solves, B := op(A)^-1 B.

Column-oriented substitution: with X_k = A_kk^-1 B_k, subtract A[i, k] X_k from every B_i that is left. Panel k+1 of A, which
waits for nothing, is on its way while panel k is applied. A transposed problem is the problem of the transposed view.

Source: PBLAS PxTRSM; LAPACK xTRTRS.
"""

import numpy as np

from pypto.layout import Cyclic, Layout
from pypto.linalg._tiled import Panel, Tiles
from pypto.tiles import TiledArray

__all__ = ["trsm", "trsm_layout"]


def trsm_layout(a: Layout, nrhs: int, trans: str) -> Layout:
    """Return the layout in which the right-hand side of a solve with square-tiled `a` must be: rows as those of op(A)."""
    rows, cols = a.dims if trans == "N" else a.dims[::-1]
    q = a.grid.shape[cols.axis]
    wide = max(1, min(rows.nb, -(-nrhs // q)))
    return Layout((a.shape[0], nrhs), a.grid, (rows, Cyclic(cols.axis, wide)))


def trsm(a: TiledArray, b: TiledArray, lower: bool, trans: str, unit: bool) -> None:
    """B := op(A)^-1 B in place; A square-tiled, its other triangle not read, B in the layout of :func:`trsm_layout`.

    Collective over the grid. Cost: n^2 nrhs flops; each tile column of A crosses the grid rows once.
    """
    if not a.layout.holds(a.world.rank) or 0 in b.shape:
        return
    if trans != "N":
        a, lower = a.transpose((1, 0)), not lower
    t, x = Tiles(a), Tiles(b)
    order = range(len(t)) if lower else range(len(t) - 1, -1, -1)
    coming = _start(t, order[0], lower)
    for step, k in enumerate(order):
        panel = coming.wait()
        if step + 1 < len(t):
            coming = _start(t, order[step + 1], lower)
        _apply(t, x, k, panel.part, lower, "U" if unit else "N", trans == "C")


def _start(t: Tiles, k: int, lower: bool) -> Panel:
    """Begin to broadcast the part of tile column k that lies in the triangle, diagonal tile included."""
    width = t.width(k)
    begin, end = (t.r(k), t.local.shape[0]) if lower else (0, t.r(k + 1))
    panel = Panel(t, k, end - begin, width, 0)
    if t.col == t.owner_col(k):
        panel.part[...] = t.local[begin:end, t.c(k) : t.c(k) + width]
    return panel.send()


def _apply(t: Tiles, x: Tiles, k: int, part: np.ndarray, lower: bool, diag: str, conj: bool) -> None:
    """X_k := A_kk^-1 B_k on its grid row, spread it down the grid column, subtract A[rest, k] X_k."""
    width = part.shape[1]
    if conj:
        np.conjugate(part, out=part)
    mine = t.row == t.owner_row(k)
    place = t.r(k)
    if lower:
        akk, rest = (part[:width], part[width:]) if mine else (part[:0], part)
        target = x.local[place + width if mine else place :]
    else:
        akk, rest = (part[len(part) - width :], part[: len(part) - width]) if mine else (part[:0], part)
        target = x.local[:place]
    if x.local.shape[1] == 0:
        return
    xk = np.empty((width, x.local.shape[1]), part.dtype, order="F")
    if mine:
        block = x.local[place : place + width]
        x.device.trsm("L", "L" if lower else "U", "N", diag, 1.0, akk, block)
        xk[...] = block
    x.col_comm.bcast(xk, t.owner_row(k))
    x.device.gemm(-1.0, rest, xk, 1.0, target)
