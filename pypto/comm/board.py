"""The status board: a page of shared memory on each node in which every rank says what it is doing."""

import atexit
import os
import sys
import time
from typing import Any

import numpy as np

from pypto.comm.memory import SharedBlock, attach

__all__ = ["Board"]

_ROW = np.dtype([("pid", "i8"), ("evaluation", "i8"), ("finished", "i8"), ("since", "f8"), ("where", "S200")])


class Board:
    """One row per rank of the node. Where the page cannot be shared, the board knows this rank only."""

    def __init__(self, comm: Any, on_node: Any) -> None:
        self.world_ranks: list[int] = on_node.allgather(comm.rank)
        mine = on_node.Get_rank()
        block = SharedBlock(_ROW.itemsize * on_node.Get_size()) if mine == 0 else None
        address = on_node.bcast(block.address if block is not None else None, 0)
        try:
            if block is not None:
                self.rows = block.array((on_node.Get_size(),), _ROW)
            else:
                self.rows = attach(address, (on_node.Get_size(),), _ROW)
        except OSError as error:
            print(
                f"pypto: rank {comm.rank} cannot map its node's status page ({error}): its reports name itself alone",
                file=sys.stderr,
            )
            self.rows, mine, self.world_ranks = np.zeros(1, _ROW), 0, [comm.rank]
        self.me = self.rows[mine : mine + 1]
        self.me["pid"] = os.getpid()
        self._where = self.me["where"]
        on_node.Barrier()
        if block is not None:
            block.close()
        self._pid = os.getpid()
        atexit.register(self._finish)

    def set(self, where: str, evaluation: int) -> None:
        """Say what this rank is about to do."""
        self._where[0] = where[:200].encode("utf-8", "replace")[:200]
        self.me["evaluation"] = evaluation
        self.me["since"] = time.time()

    def _finish(self) -> None:
        if os.getpid() == self._pid:
            self.me["finished"] = 1

    def gone(self, ranks: tuple[int, ...]) -> list[int]:
        """Return which of some world ranks have ended."""
        ended = []
        for world_rank, row in zip(self.world_ranks, self.rows, strict=True):
            if world_rank in ranks and (row["finished"] or not _alive(int(row["pid"]))):
                ended.append(world_rank)
        return ended

    def text(self) -> str:
        """Return a line for every rank of the node."""
        now = time.time()
        lines = []
        for world_rank, row in zip(self.world_ranks, self.rows, strict=True):
            state = "ended" if row["finished"] or not _alive(int(row["pid"])) else "alive"
            where = row["where"].decode("utf-8", "replace") or "nothing computed yet"
            age = f" for {now - row['since']:.0f} s" if row["since"] else ""
            lines.append(f"  rank {world_rank} (pid {row['pid']}, {state}): evaluation {row['evaluation']}, {where}{age}")
        return "\n".join(lines)

    def report(self, rank: int, seconds: float) -> None:
        """Print where every rank of the node is."""
        print(f"pypto: rank {rank} has waited {seconds:.0f} s. The ranks are at:\n{self.text()}", file=sys.stderr, flush=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
