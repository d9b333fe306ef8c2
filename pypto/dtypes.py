"""Element types: the ones the library computes with, and how NumPy's rules promote them."""

from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["SUPPORTED", "checked", "result_type"]

SUPPORTED = tuple(
    np.dtype(t)
    for t in (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    )
)
#: NumPy has several types of one kind and size (``long`` and ``long long``); equal ones are one here.
_CANONICAL = {dt: dt for dt in SUPPORTED}


@lru_cache(maxsize=256)
def checked(dtype: Any) -> np.dtype[Any]:
    """Return `dtype` as a native NumPy dtype, or raise TypeError if pypto cannot hold it."""
    dt = np.dtype(dtype).newbyteorder("=")
    if dt not in _CANONICAL:
        names = " ".join(str(d) for d in SUPPORTED)
        raise TypeError(f"dtype {dt} is not supported; allowed: {names}. Convert the data to one of these first.")
    return _CANONICAL[dt]


def result_type(*operands: Any) -> np.dtype[Any]:
    """NumPy's result type of dtypes, arrays and Python scalars (which promote weakly)."""
    return checked(np.result_type(*operands))
