"""Devices: where local parts live and the kernels that run on them.

A device allocates buffers, hands out queues and holds a kernel table. The algorithms name kernels only; a device that
lacks one raises :class:`~pypto.errors.BackendUnavailable` when it is asked for.
"""

from collections import deque
from collections.abc import Callable

import numpy as np

from pypto.device import _kernels

__all__ = ["CpuDevice", "WorkQueue"]


class WorkQueue:
    """Trailing work in pieces, run in program order while a rank waits for a message.

    On a CPU there is one thread of control, so "asynchronous" work is cooperative: `put` stores a piece, `step` runs the
    oldest one, `drain` runs all that are left. A piece lasts one or two milliseconds, so that a request that completes
    meanwhile is noticed soon.
    """

    def __init__(self) -> None:
        self._pieces: deque[Callable[[], None]] = deque()

    def put(self, piece: Callable[[], None]) -> None:
        """Append a piece; it must not communicate."""
        self._pieces.append(piece)

    def step(self) -> bool:
        """Run the oldest piece; return False when there was none."""
        if not self._pieces:
            return False
        self._pieces.popleft()()
        return True

    def drain(self) -> None:
        """Run every piece that is left."""
        while self.step():
            pass


class CpuDevice:
    """NumPy buffers; BLAS and LAPACK through SciPy's Cython interfaces; our own copy kernels."""

    kind = "cpu"

    gemm = staticmethod(_kernels.gemm)
    trsm = staticmethod(_kernels.trsm)
    herk = staticmethod(_kernels.herk)
    potrf = staticmethod(_kernels.potrf)
    getrf = staticmethod(_kernels.getrf)
    geqrt = staticmethod(_kernels.geqrt)
    laswp = staticmethod(_kernels.laswp)
    copy_indexed = staticmethod(_kernels.copy_indexed)

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: np.dtype, order: tuple[int, ...]) -> np.ndarray:
        """Return an uninitialised array whose axes vary from slowest to fastest in `order`."""
        if order == tuple(range(len(shape))):
            return np.empty(shape, dtype)
        if order == tuple(reversed(range(len(shape)))):
            return np.empty(shape, dtype, order="F")
        raw = np.empty([shape[a] for a in order], dtype)
        return raw.transpose(np.argsort(order))

    @staticmethod
    def queue() -> WorkQueue:
        """Return a new queue for work that may run late."""
        return WorkQueue()
