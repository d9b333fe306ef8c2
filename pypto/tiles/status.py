"""Failures that are expected become the same exception on every rank."""

import pickle

import numpy as np

from pypto.incidents import Incident, agreed, is_agreed, merged
from pypto.tiles.tiled import World

__all__ = ["agree", "agreed", "exchanged", "is_agreed"]


def agree(world: World, error: BaseException | None) -> None:
    """Raise on every rank the failure of the lowest rank that has one. Collective.

    Every rank calls this at the same place with its own failure or None, after it has completed its communication.
    Cost: one reduction of eight bytes while all is well.
    """
    if world.size == 1:
        if error is not None:
            raise agreed(error)
        return
    first = np.array([world.size if error is None else world.rank], np.int64)
    world.comm.allreduce(first, "min")
    if first[0] == world.size:
        return
    report = _packed(error) if world.rank == first[0] else None
    packed, text = world.comm.bcast_object(report, int(first[0]))
    failure = error if world.rank == first[0] else _unpacked(packed, text)
    failure.add_note(f"(raised on rank {first[0]} of {world.size})")
    raise agreed(failure)


def exchanged(world: World, mine: list[Incident]) -> list[Incident]:
    """Return the incidents of all ranks, merged. Collective."""
    packed = [(*i[:4], _packed(i[4]) if i[3] == "error" else i[4]) for i in mine]
    lists = world.comm.allgather_object(packed)
    return merged([[(*i[:4], _unpacked(*i[4]) if i[3] == "error" else i[4]) for i in part] for part in lists])


def _packed(error: BaseException) -> tuple[bytes | None, str]:
    text = f"{type(error).__name__}: {error}"
    try:
        packed = pickle.dumps(error)
        pickle.loads(packed)
    except Exception:  # an exception class that cannot be pickled travels as text
        return None, text
    return packed, text


def _unpacked(packed: bytes | None, text: str) -> BaseException:
    if packed is not None:
        try:
            return pickle.loads(packed)  # from another rank of this world
        except Exception:  # its class exists on that rank only
            pass
    return RuntimeError(text)
