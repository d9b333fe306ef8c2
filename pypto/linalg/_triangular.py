"""Triangular solves, B := op(A)^-1 B.

Column-oriented substitution: with X_k = A_kk^-1 B_k, subtract A[i, k] X_k from every B_i that is left. A transposed problem
is the problem of the transposed view, and with A^H that of the conjugate right-hand side.

With many right-hand sides B stays where it is and the panels of A travel along the grid rows, the next one while this one is
applied. With few, A stays: every grid column keeps a share of B whose sum over the grid row is B, and what travels are tiles
of a few columns. The rows of the next tile are updated first, so that its solution overlaps the rest of the update.

Source: PBLAS PxTRSM; LAPACK xTRTRS; M. Heath and C. Romine, Parallel solution of triangular systems (1988).
"""

import numpy as np

from pypto.device.cpu import WorkQueue
from pypto.layout.layout import Cyclic, Layout
from pypto.linalg._tiled import Panel, Tiles
from pypto.tiles.tiled import TiledArray

__all__ = ["trsm", "trsm_layout"]

#: Up to so many right-hand sides A stays and B travels.
FEW = 128


def trsm_layout(a: Layout, nrhs: int, trans: str) -> Layout:
    """Return the layout in which the right-hand side of a solve with square-tiled `a` must be: rows as those of op(A)."""
    rows, cols = a.dims if trans == "N" else a.dims[::-1]
    q = a.grid.shape[cols.axis]
    wide = max(1, min(rows.nb, -(-nrhs // q)))
    return Layout((a.shape[0], nrhs), a.grid, (rows, Cyclic(cols.axis, wide)))


def trsm(a: TiledArray, b: TiledArray, lower: bool, trans: str, unit: bool) -> None:
    """B := op(A)^-1 B in place; A square-tiled, its other triangle not read, B in the layout of :func:`trsm_layout`.

    Collective over the grid. Cost: n^2 nrhs flops. Each tile column of A crosses the grid rows once, or with few
    right-hand sides B crosses the grid rows and columns once.
    """
    if not a.layout.holds(a.world.rank) or 0 in b.shape:
        return
    if trans != "N":
        a, lower = a.transpose((1, 0)), not lower
    conjugate = trans == "C" and b.dtype.kind == "c"
    if conjugate:
        np.conjugate(b.local, out=b.local)
    solve = _solve_few if b.shape[1] <= FEW else _solve_many
    solve(Tiles(a), Tiles(b), lower, "U" if unit else "N")
    if conjugate:
        np.conjugate(b.local, out=b.local)


def _order(t: Tiles, lower: bool) -> list[int]:
    """Tile rows in the order in which they are solved."""
    return list(range(len(t)) if lower else range(len(t) - 1, -1, -1))


def _left(t: Tiles, k: int, lower: bool) -> tuple[slice, slice]:
    """Local rows of the tile row that is solved after k, and of all that come later."""
    if lower:
        return slice(t.r(k + 1), t.r(k + 2)), slice(t.r(k + 2), t.local.shape[0])
    return slice(t.r(max(k - 1, 0)), t.r(k)), slice(0, t.r(max(k - 1, 0)))


# few right-hand sides: A stays


def _solve_few(t: Tiles, x: Tiles, lower: bool, diag: str) -> None:
    order = _order(t, lower)
    mine = x.a.layout.indices(1, x.a.world.rank)
    share = np.zeros((t.local.shape[0], x.n), t.local.dtype, order="F")
    share[:, mine] = x.local
    sent = [_send_share(t, order[0], share)]
    for k, following in zip(order, [*order[1:], None], strict=True):
        if t.col != t.owner_col(k):
            sent.append(_send_share(t, following, share))
            continue
        xk = _solve_tile(t, k, share, "L" if lower else "U", diag)
        panel = t.local[:, t.c(k) : t.c(k) + t.width(k)]
        soon, later = _left(t, k, lower)
        t.device.gemm(-1.0, panel[soon], xk, 1.0, share[soon])
        sent.append(_send_share(t, following, share))
        t.device.gemm(-1.0, panel[later], xk, 1.0, share[later])
    for message in sent:
        if message is not None:
            message[0].wait()
    t.row_comm.allreduce(share)  # X is where it was solved; elsewhere there are zeros
    x.local[...] = share[:, mine]


def _send_share(t: Tiles, k: int | None, share: np.ndarray) -> tuple | None:
    """Send this grid column's share of tile row k to the owner of the diagonal tile, leaving zeros."""
    if k is None or t.row != t.owner_row(k) or t.col == t.owner_col(k):
        return None
    rows = share[t.r(k) : t.r(k + 1)]
    buffer = np.array(rows, order="F")
    rows[...] = 0
    return t.row_comm.isend(buffer, t.owner_col(k)), buffer


def _solve_tile(t: Tiles, k: int, share: np.ndarray, uplo: str, diag: str) -> np.ndarray:
    """Add the shares of tile row k, solve with the diagonal tile, and give X_k to the grid column that owns it."""
    xk = np.empty((t.width(k), share.shape[1]), share.dtype, order="F")
    if t.row == t.owner_row(k):
        rows = slice(t.r(k), t.r(k + 1))
        xk[...] = share[rows]
        others = [np.empty_like(xk) for _ in range(t.q - 1)]
        sources = [c for c in range(t.q) if c != t.col]
        requests = [t.row_comm.irecv(o, c) for o, c in zip(others, sources, strict=True)]
        for request, other in zip(requests, others, strict=True):
            request.wait()
            xk += other
        t.device.trsm("L", uplo, "N", diag, 1.0, t.local[rows, t.c(k) : t.c(k) + len(xk)], xk)
        share[rows] = xk
    t.col_comm.bcast(xk, t.owner_row(k))
    return xk


# many right-hand sides: B stays


def _solve_many(t: Tiles, x: Tiles, lower: bool, diag: str) -> None:
    order = _order(t, lower)
    trailing = t.device.queue()
    coming = _start(t, order[0], lower)
    for k, following in zip(order, [*order[1:], None], strict=True):
        panel = coming.wait(trailing.step)
        trailing.drain()
        if following is not None:
            coming = _start(t, following, lower)
        if x.local.shape[1]:
            _apply(t, x, k, panel.part, lower, diag, trailing)
    trailing.drain()


def _start(t: Tiles, k: int, lower: bool) -> Panel:
    """Begin to broadcast the part of tile column k that lies in the triangle, diagonal tile included."""
    width = t.width(k)
    begin, end = (t.r(k), t.local.shape[0]) if lower else (0, t.r(k + 1))
    panel = Panel(t, k, end - begin, width, 0)
    return panel.send(t.local[begin:end, t.c(k) : t.c(k) + width] if t.col == t.owner_col(k) else None)


def _apply(t: Tiles, x: Tiles, k: int, part: np.ndarray, lower: bool, diag: str, trailing: WorkQueue) -> None:
    """X_k := A_kk^-1 B_k on its grid row, spread it down the grid column, subtract A[i, k] X_k: the next tile row now."""
    rows = slice(t.r(k), t.r(k + 1))
    first = rows.start if lower else 0  # the local row at which `part` begins
    xk = np.empty((t.width(k), x.local.shape[1]), part.dtype, order="F")
    if t.row == t.owner_row(k):
        block = x.local[rows]
        t.device.trsm("L", "L" if lower else "U", "N", diag, 1.0, part[rows.start - first : rows.stop - first], block)
        xk[...] = block
    t.col_comm.bcast(xk, t.owner_row(k))
    soon, later = _left(t, k, lower)

    def subtract(rows: slice, columns: slice) -> None:
        left = part[rows.start - first : rows.stop - first]
        t.device.gemm(-1.0, left, xk[:, columns], 1.0, x.local[rows, columns])

    subtract(soon, slice(0, xk.shape[1]))
    for cut in x.piece_columns(k if lower else len(t) - 1 - k, 0):
        trailing.put(lambda cut=cut: subtract(later, cut))
