"""Panels that the ranks of one node read where they were written.

Every rank of a communicator has two places for panels, which the others map. A message of eight bytes says that a panel is
there; no rank copies it, and its reader needs no progress from its writer, which may be deep in a product meanwhile.
"""

import os

import numpy as np

from pypto.comm.comm import Comm
from pypto.comm.memory import SharedBlock, attach

__all__ = ["SharedPlaces", "on_one_node"]

#: Panels smaller than this are broadcast: to map them costs more than it saves.
LEAST = 2**18


class SharedPlaces:
    """Two places of some bytes on each rank, used in turn.

    Invariant: a rank gives panel j only when it has done with panel j-2, and the ranks give panels in rotation. So when a
    rank fills a place again, all others have given a panel since, and have done with what was there.
    """

    def __init__(self, places: list[np.ndarray]) -> None:
        self._places = places
        self._turn = [0] * len(places)

    @staticmethod
    def open(comm: Comm, nbytes: int) -> "SharedPlaces | None":
        """Map each other's memory, or return None on every rank where one cannot. Collective."""
        nbytes = -(-nbytes // 4096) * 4096
        cookie = os.urandom(16)
        block, offer = None, None
        try:
            block = SharedBlock(2 * nbytes)
            block.array((16,), np.uint8)[...] = np.frombuffer(cookie, np.uint8)
            offer = os.uname().nodename, block.address, cookie
        except OSError:  # no anonymous files, or no memory
            pass
        places = []
        for rank, there in enumerate(comm.allgather_object(offer)):
            if rank == comm.rank and block is not None:
                places.append(block.array((2, nbytes), np.uint8))
            elif there is not None and there[0] == os.uname().nodename:
                places.append(_mapped(there[1], (2, nbytes), there[2]))
        fine = np.array([len(places) == comm.size and all(p is not None for p in places)])
        comm.allreduce(fine, "land")
        if block is not None:
            block.close()
        return SharedPlaces(places) if fine[0] else None

    def next(self, rank: int, nbytes: int) -> np.ndarray:
        """Return where the next panel of `rank` lies."""
        turn = self._turn[rank]
        self._turn[rank] = 1 - turn
        return self._places[rank][turn, :nbytes]


def on_one_node(comm: Comm) -> bool:
    """Return whether all ranks run on one machine, by its name. Collective."""
    return len(set(comm.allgather_object(os.uname().nodename))) == 1


def _mapped(address: tuple[int, int], shape: tuple[int, int], cookie: bytes) -> np.ndarray | None:
    """Map a peer's block, None where that is not possible or something else lies there."""
    try:
        there = attach(address, shape, np.dtype(np.uint8))
    except (OSError, ValueError, TypeError):
        return None
    return there if there[0, :16].tobytes() == cookie else None
