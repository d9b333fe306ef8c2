"""The row that passes results through once they are seen to belong to their operands.

Both sides of the equation that defines the results are applied to one random vector, which finds an error that has no reason
to avoid it with probability one. Cost: a pass over the matrices and a few reductions of vectors.

Source: R. Freivalds, Fast probabilistic algorithms (1979); HPL's scaled residual for the measure.
"""

from collections.abc import Callable

import numpy as np

from pypto.errors import VerificationError
from pypto.layout.layout import Layout
from pypto.linalg._solvers import permutation
from pypto.ops.opdef import Env, register
from pypto.tiles.status import agreed
from pypto.tiles.tiled import TiledArray

__all__: list[str] = []

#: Residuals up to so many times n eps (|A| |x| + |b|) are rounding.
LIMIT = 100.0
#: Columns of the local part that are read at a time.
PIECE = 256


def times(a: TiledArray, x: np.ndarray, trans: str = "N", keep: Callable | None = None) -> np.ndarray:
    """Return op(A) x on every rank, of the elements a_ij only for which keep(i, j). Collective over the world."""
    m, n = a.shape
    y = np.zeros(m if trans == "N" else n, np.result_type(a.dtype, x.dtype))
    if a.layout.holds(a.world.rank) and a.layout.replica(a.world.rank)[0] == 0:
        i, j = (a.layout.indices(k, a.world.rank) for k in (0, 1))
        for begin in range(0, len(j), PIECE):
            cut = slice(begin, begin + PIECE)
            part = a.local[:, cut]
            if keep is not None:
                part = np.where(keep(i[:, np.newaxis], j[np.newaxis, cut]), part, 0)
            if trans == "N":
                y[i] += part @ x[j[cut]]
            else:
                y[j[cut]] = part.conj().T @ x[i] if trans == "C" else part.T @ x[i]
    a.world.comm.allreduce(y)
    return y


def _below(i, j):
    return i > j


def _above(i, j):
    return i < j


def _from_diagonal(i, j):
    return i <= j


def _to_diagonal(i, j):
    return i >= j


def _frobenius(a: TiledArray, keep: Callable | None = None) -> float:
    """Return the Frobenius norm; on every rank."""
    total = np.zeros(1)
    if a.layout.holds(a.world.rank) and a.layout.replica(a.world.rank)[0] == 0:
        i, j = (a.layout.indices(k, a.world.rank) for k in (0, 1))
        for begin in range(0, len(j), PIECE):
            cut = slice(begin, begin + PIECE)
            part = a.local[:, cut]
            if keep is not None:
                part = np.where(keep(i[:, np.newaxis], j[np.newaxis, cut]), part, 0)
            total[0] += np.linalg.norm(part) ** 2
    a.world.comm.allreduce(total)
    return float(np.sqrt(total[0]))


_READ = {
    "upper triangular": _from_diagonal,
    "lower triangular": _to_diagonal,
    "diagonal": lambda i, j: i == j,
    "tridiagonal": lambda i, j: abs(i - j) <= 1,
}
_HALVES = ("symmetric", "hermitian", "positive definite")


def _read(assume: str | None, lower: bool) -> Callable | None:
    """Return which elements of a matrix a solve reads, None for all."""
    return (_to_diagonal if lower else _from_diagonal) if assume in _HALVES else _READ.get(assume)


def _whole_of(a: TiledArray, x: np.ndarray, assume: str | None, lower: bool) -> np.ndarray:
    """Return A x, reading the part of A that a solve reads."""
    y = times(a, x, keep=_read(assume, lower))
    if assume in _HALVES:
        y = y + times(a, x, "T" if assume == "symmetric" else "C", _below if lower else _above)
    return y


def _check_lu(made, operands, options, x) -> tuple:
    (lu, piv), (a,) = made, operands
    m, n = a.shape
    k = min(m, n)
    u = times(lu, x, keep=lambda i, j: (i <= j) & (i < k))
    head = np.concatenate([u[:k], np.zeros(max(n - k, 0), u.dtype)])
    lower = times(lu, head, keep=_below) + np.concatenate([u[:k], np.zeros(m - k, u.dtype)])
    both = np.empty_like(lower)
    both[permutation(piv.local, m)] = lower
    return both, times(a, x), _frobenius(a)


def _check_cholesky(made, operands, options, x) -> tuple:
    (c,), (a,), (lower,) = made, operands, options
    keep = _to_diagonal if lower else _from_diagonal
    inner = times(c, x, "C" if lower else "N", keep)
    return times(c, inner, "N" if lower else "C", keep), _whole_of(a, x, "positive definite", lower), _frobenius(a, keep)


def _check_qr(made, operands, options, x) -> tuple:
    (q, r), (a,) = made, operands
    product = times(q, times(r, x, keep=_from_diagonal))
    turned = times(q, product, "C")  # Q has orthonormal columns: the way back is the way there
    again = times(r, x, keep=_from_diagonal)
    return np.concatenate([product, turned]), np.concatenate([times(a, x), again]), _frobenius(a)


def _check_solve(made, operands, options, x) -> tuple:
    (y,), (a, b) = made, operands
    x = x[: b.shape[1]]
    solution = times(y, x)
    size = _frobenius(a, _read(*options)) * max(float(np.linalg.norm(solution)), 1e-300)
    return _whole_of(a, solution, *options), times(b, x), size


_CHECKS = {"lu": _check_lu, "cholesky": _check_cholesky, "qr": _check_qr, "solve": _check_solve}


def _run_verified(world, ins, layout, attrs, dtype):
    kind, count, options = attrs
    made, operands = ins[:count], ins[count:]
    n = max(operands[-1].shape)
    x = np.random.default_rng(n).standard_normal(n + 1)[: operands[0].shape[1] if kind != "solve" else n]
    if made[0].dtype.char in "fF":
        x = x.astype(np.float32)
    if 0 not in operands[0].shape:
        with np.errstate(all="ignore"):
            left, right, size = _CHECKS[kind](made, operands, options, x)
            eps = np.finfo(left.dtype).eps
            scale = eps * n * (size * (1 if kind == "solve" else np.linalg.norm(x)) + np.linalg.norm(right))
            ratio = np.array([np.linalg.norm(left - right) / scale if scale > 0 else np.linalg.norm(left - right)])
        ratio[np.isnan(ratio)] = np.inf
        world.comm.allreduce(ratio, "max")
        if not ratio[0] <= LIMIT:
            raise agreed(
                VerificationError(
                    f"{kind}: the result does not belong to its operands: on a random vector the two sides differ by "
                    f"{ratio[0]:.3g} n eps of their size, where rounding allows {LIMIT:.0f}. Compute it again; if that "
                    "helps, the hardware has failed, else the matrix makes the method unstable"
                )
            )
    return tuple(made)


def _place_verified(env: Env, layouts, out_shape, attrs):
    want = tuple(_counted(env, x) if len(x.shape) == 2 else env.replicated(x.shape) for x in layouts)
    return want, want[: attrs[1]]


def _counted(env: Env, layout: Layout) -> Layout:
    return env.layout(layout.shape) if layout.partial else layout


register(
    name="verified",
    infer=lambda shapes, dtypes, attrs: (tuple(shapes[: attrs[1]]), tuple(dtypes[: attrs[1]])),
    place=_place_verified,
    run=_run_verified,
    cost=lambda shapes, out_shape, attrs: 6 * max(s[0] * s[-1] for s in shapes if s),
    view=True,
    family="check",
)
