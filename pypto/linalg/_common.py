"""What the public functions share: operands, batches, right-hand sides, checks of results."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from pypto.array.array import Array, apply, as_array, results
from pypto.array.elementwise import astype
from pypto.array.manipulation import broadcast_to, expand_dims, reshape, squeeze, stack
from pypto.config import settings
from pypto.errors import GatherError, GatherWarning
from pypto.graph.graph import user_line
from pypto.incidents import tell
from pypto.ops.elementwise import broadcast_shapes

__all__ = ["gathered", "inexact", "matrix", "over_batch", "row", "square", "verified", "with_rhs"]

#: Order of a problem from which collecting it on one rank deserves a word.
LARGE = 1000


def inexact(x: Any) -> Array:
    """Return an operand in one of LAPACK's four types; integers and half precision are converted as SciPy does."""
    a = as_array(x)
    if a.dtype.char in "fdFD":
        return a
    return astype(a, np.float32 if a.dtype == np.float16 else np.float64)


def matrix(x: Any, name: str) -> Array:
    """Return an operand that must have two axes or more."""
    a = inexact(x)
    if a.ndim < 2:
        raise ValueError(f"{name} needs an array that is at least two-dimensional; got shape {a.shape}")
    return a


def square(x: Any, name: str) -> Array:
    """Return an operand that must be a square matrix, or a batch of them."""
    a = matrix(x, name)
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"{name} needs a square matrix; got shape {a.shape}")
    return a


def row(name: str, arrays: tuple[Array, ...], attrs: tuple, ranks: tuple[int, ...], several: bool = False) -> Any:
    """Apply a row of the table to matrices, or to each problem of a batch."""
    call = results if several else apply
    if all(a.ndim == r for a, r in zip(arrays, ranks, strict=True)):
        return call(name, arrays, attrs)
    lead = broadcast_shapes(*(a.shape[: a.ndim - r] for a, r in zip(arrays, ranks, strict=True)))
    full = tuple(broadcast_to(a, (*lead, *a.shape[a.ndim - r :])) for a, r in zip(arrays, ranks, strict=True))
    return call("batch", full, (name, attrs, ranks))


def with_rhs(name: str, matrices: tuple[Array, ...], ranks: tuple[int, ...], b: Any, attrs: tuple) -> Array:
    """Apply a solve to a right-hand side that is a vector or a matrix."""
    b = inexact(b)
    n = matrices[0].shape[-1]
    vector = b.ndim == 1
    if b.ndim == 0 or b.shape[0 if vector else -2] != n:
        raise ValueError(f"{name}: a matrix of shape {matrices[0].shape} and a right-hand side of shape {b.shape} do not match")
    if vector:
        b = expand_dims(b, 1)
    x = row(name, (*matrices, b), attrs, (*ranks, 2))
    return squeeze(x, -1) if vector else x


def over_batch(call: Callable[..., Any], arrays: tuple[Array, ...], ranks: tuple[int, ...]) -> Any:
    """Apply a function of matrices to each problem of a batch in turn, and stack its results."""
    lead = broadcast_shapes(*(a.shape[: a.ndim - r] for a, r in zip(arrays, ranks, strict=True)))
    full = [
        reshape(broadcast_to(a, (*lead, *a.shape[a.ndim - r :])), (prod(lead), *a.shape[a.ndim - r :]))
        for a, r in zip(arrays, ranks, strict=True)
    ]
    if not prod(lead):
        raise ValueError(f"a batch of shape {lead} holds no problem")
    made = [call(*(a[i] for a in full)) for i in range(prod(lead))]

    def joined(parts):
        whole = stack([as_array(p) for p in parts])
        return reshape(whole, (*lead, *whole.shape[1:]))

    if not isinstance(made[0], tuple):
        return joined(made)
    return tuple(None if parts[0] is None else joined(parts) for parts in zip(*made, strict=True))


def gathered(name: str, arrays: tuple[Array, ...], options: tuple, why: str) -> tuple[Array, ...]:
    """Solve a reduced problem on one rank, saying so where it is large."""
    size = sum(a.nbytes for a in arrays)
    if arrays[0]._node.context.size > 1 and min(arrays[0].shape[-2:]) > LARGE:
        text = f"{why} collects {size:,} bytes on one device: the reduced problem has no distributed algorithm"
        if settings.strict:
            raise GatherError(text + "; config(strict=False) allows it")
        tell(GatherWarning(text), user_line())
    return row("gathered", arrays, (name, options), (2,) * len(arrays), several=True)


def verified(kind: str, made: tuple[Array, ...], operands: tuple[Array, ...], options: tuple, asked: bool | None) -> tuple:
    """Return results that are compared with their operands when they are computed, where `asked` or the settings say so."""
    if not (settings.verify if asked is None else asked) or made[0].ndim != 2:
        return made
    return results("verified", (*made, *operands), (kind, len(made), options))
