"""Memory that another process of this machine can map: anonymous files reached through ``/proc``.

An anonymous file (memfd) needs no ``/dev/shm`` and vanishes with the last process that maps it. A peer of the same user
opens it by process id and descriptor.
"""

import mmap
import os

import numpy as np

__all__ = ["SharedBlock", "attach"]


class SharedBlock:
    """A block of `nbytes` that peers map by its `address` while `close` has not been called; `array` stays valid after."""

    def __init__(self, nbytes: int) -> None:
        self._fd = os.memfd_create("pypto", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, max(nbytes, 1))
        self._map = mmap.mmap(self._fd, max(nbytes, 1))

    @property
    def address(self) -> tuple[int, int]:
        """Process id and descriptor, for :func:`attach`."""
        return os.getpid(), self._fd

    def array(self, shape: tuple[int, ...], dtype: np.dtype, order: str = "C") -> np.ndarray:
        """Return the block as an array; the mapping lives as long as the array."""
        return np.ndarray(shape, dtype, self._map, order=order)

    def close(self) -> None:
        """Close the descriptor: no new peer can attach."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def attach(address: tuple[int, int], shape: tuple[int, ...], dtype: np.dtype, order: str = "C") -> np.ndarray:
    """Map a peer's block as an array."""
    pid, fd = address
    handle = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        size = os.fstat(handle).st_size
        return np.ndarray(shape, dtype, mmap.mmap(handle, size), order=order)
    finally:
        os.close(handle)
