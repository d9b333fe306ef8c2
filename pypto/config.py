"""Settings: one record, changed for good or for a block of code by :func:`config`."""

import dataclasses
import os
import re
from dataclasses import dataclass, fields
from typing import Any, ClassVar

__all__ = ["Settings", "config", "parse_bytes", "settings"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(value: int | str | None) -> int | None:
    """Return a byte count from an int or from text such as ``"30GB"`` or ``"512MiB"``."""
    if value is None:
        return None
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", value.lower())
        if match is None:
            raise ValueError(f'memory_limit={value!r} is not a size; write bytes, "30GB" or "512MiB"')
        value = int(float(match[1]) * _UNITS[match[2] or ""])
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(f'memory_limit={value!r} must be a positive number of bytes, "30GB" or "512MiB"')
    return value


@dataclass
class Settings:
    """Everything that :func:`config` can change; the same on every rank."""

    memory_limit: int | None = None  # bytes per device
    chunk_size: int | None = None  # tile size nb; None: chosen from the shape
    grid: tuple[int, ...] | None = None  # default process grid; None: the squarest
    num_workers: int | None = None  # kernel threads per device; None: cores / ranks of the node
    mixed_precision: bool = True
    eager: bool = False  # evaluate each operation at once
    strict: bool = False  # a gather is an error
    verify: bool = False  # factorisations and solves check their results
    debug: bool = False  # run the graph verifier before each computation
    max_pending: int = 100_000  # nodes that may wait before the graph runs by itself
    max_message: int = 2**31 - 1  # bytes of one message; larger ones are split
    share_memory: bool = True  # ranks of a node read each other's panels in place

    #: Counts changes, so that whoever holds a copy of the settings knows when it is stale.
    changes: ClassVar[int] = 0

    def check(self) -> None:
        """Raise ValueError where a setting is out of range, naming it and what is allowed."""
        self.memory_limit = parse_bytes(self.memory_limit)
        for name, low, high in (("chunk_size", 1, 10_000), ("num_workers", 1, 64)):
            value = getattr(self, name)
            if value == "auto":
                value = None
                setattr(self, name, None)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f'{name}={value!r} is not allowed; give "auto" or an integer from {low} to {high}')
        for name in ("max_pending", "max_message"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r} is not allowed; give a positive integer")
        for name in ("mixed_precision", "eager", "strict", "verify", "debug", "share_memory"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}={getattr(self, name)!r} is not allowed; give True or False")
        self.max_message = min(self.max_message, 2**31 - 1)
        self._check_grid()

    def _check_grid(self) -> None:
        if isinstance(self.grid, str) and self.grid == "auto":
            self.grid = None
        if self.grid is not None:
            grid = self.grid
            if not isinstance(grid, (tuple, list)) or not grid or not all(isinstance(g, int) and g > 0 for g in grid):
                raise ValueError(f'grid={grid!r} is not allowed; give "auto" or a tuple of positive integers such as (2, 2)')
            self.grid = tuple(grid)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as a plain dictionary, the form in which a driver ships them."""
        return dataclasses.asdict(self)

    def assign(self, values: dict[str, Any]) -> None:
        """Set several settings at once; either all of them are valid and taken, or none is."""
        names = [f.name for f in fields(self)]
        for name in values:
            if name not in names:
                raise ValueError(f"unknown setting {name!r}; the settings are {', '.join(names)}")
        trial = dataclasses.replace(self, **values)
        trial.check()
        for name in names:
            setattr(self, name, getattr(trial, name))
        self.changes += 1  # type: ignore[misc]  # from here on an attribute of the instance


settings = Settings(
    debug=os.environ.get("PYPTO_DEBUG", "") not in ("", "0"),
    eager=os.environ.get("PYPTO_EAGER", "") not in ("", "0"),
)


class _Restore:
    def __init__(self, before: dict[str, Any]) -> None:
        self._before = before

    def __enter__(self) -> Settings:
        return settings

    def __exit__(self, *exc: object) -> None:
        settings.assign(self._before)


def config(**changes: Any) -> _Restore:
    """Change settings, for good or for a ``with`` block.

    Parameters
    ----------
    **changes
        Any of ``memory_limit`` (bytes or ``"30GB"``), ``chunk_size`` (1 ... 10000), ``grid``, ``num_workers`` (1 ... 64),
        ``mixed_precision``, ``eager``, ``strict``, ``verify``, ``debug``, ``max_pending``, ``max_message`` (bytes),
        ``share_memory``.

    Returns
    -------
    context manager
        Restores the previous settings when its block ends.

    Raises
    ------
    ValueError
        An unknown name or a value out of range; nothing has changed then.

    Examples
    --------
    >>> import pypto
    >>> with pypto.config(eager=True):
    ...     y = pypto.ones(3) + 1
    """
    before = settings.as_dict()
    settings.assign(changes)
    return _Restore(before)
