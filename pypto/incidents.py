"""What happens on one rank and concerns all: exceptions of local kernels, floating-point events, warnings.

A step that does not communicate may fail on one rank alone, and NumPy may warn on one rank alone. Both are noted while an
evaluation runs and acted upon at its end, once the ranks know of each other's, so that every rank raises the same exception and
gives the same warnings in the same order, at the user's line, under the user's filters and ``np.errstate``.
"""

import contextvars
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["Incident", "Incidents", "act", "agreed", "ignore", "is_agreed", "merged", "tell", "wanted"]

#: Slot of the instruction, its name, the user's file and line, kind ("error", "float" or "warning"), and what it was.
Incident = tuple[int, str, tuple[str, int], str, Any]

_CATEGORIES = {"divide by zero": "divide", "overflow": "over", "underflow": "under", "invalid value": "invalid"}
#: By file, so that a filter that shows a warning once per line can tell.
_registries: dict[str, dict[Any, Any]] = {}
_listening: contextvars.ContextVar["Incidents"] = contextvars.ContextVar("pypto.incidents")


def agreed(error: BaseException) -> BaseException:
    """Mark an exception that every rank raises at the same place of the program, or a warning that every rank gives."""
    error._pypto_agreed = True  # type: ignore[attr-defined]
    return error


def is_agreed(error: BaseException) -> bool:
    """Return whether every rank raises `error`."""
    return getattr(error, "_pypto_agreed", False)


def _heard(text: str, flag: int) -> None:
    _listening.get().add("float", text)


def _listening_state() -> tuple[contextvars.ContextVar[Any], Any]:
    """Return NumPy's variable for its floating-point error handling, and the value by which all events come to `_heard`."""
    context = contextvars.copy_context()
    context.run(np.seterr, all="call")
    context.run(np.seterrcall, _heard)
    before = contextvars.copy_context()
    return next((v, x) for v, x in context.items() if v not in before or before[v] is not x)


_state, _hear_all = _listening_state()


class Incidents:
    """What has happened on this rank since the last evaluation."""

    __slots__ = ("_found", "at")

    def __init__(self) -> None:
        self._found: dict[Any, Incident] = {}
        #: The instruction under way.
        self.at: Any = None

    def __bool__(self) -> bool:
        return bool(self._found)

    def listen(self) -> tuple[contextvars.Token[Any], contextvars.Token[Any]]:
        """Take over what NumPy finds from here on, until what is returned is given to :func:`ignore`."""
        if self._found:
            self._found = {}
        return _listening.set(self), _state.set(_hear_all)

    def add(self, kind: str, what: Any) -> None:
        """Note something about the instruction under way; the same thing counts once."""
        at = self.at
        key = at.slot, at.where, kind, str(what)
        self._found.setdefault(key, (at.slot, at.op.name, at.where, kind, what))

    def warn(self, category: type[Warning], text: str) -> None:
        """Note a warning."""
        self.add("warning", (category, text))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note the warnings that a library gives through Python's own machinery."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for w in caught:
            self.warn(w.category, str(w.message))

    def take(self) -> list[Incident]:
        """Return what was noted, in program order, and forget it."""
        found, self._found = list(self._found.values()), {}
        return found


def ignore(tokens: tuple[contextvars.Token[Any], contextvars.Token[Any]]) -> None:
    """Leave NumPy's floating-point errors to the user's settings again."""
    _listening.reset(tokens[0])
    _state.reset(tokens[1])


def wanted(incidents: list[Incident]) -> list[Incident]:
    """Drop the floating-point events that the user's ``np.errstate`` ignores."""
    if not incidents:
        return incidents
    modes: dict[str, Any] = dict(np.geterr())
    return [i for i in incidents if i[3] != "float" or modes[_CATEGORIES[i[4]]] != "ignore"]


def merged(lists: list[list[Incident]]) -> list[Incident]:
    """Merge the ranks' incidents: by program order, then by rank, equal ones once; an exception says its rank."""
    found: dict[Any, Incident] = {}
    for rank, incidents in enumerate(lists):
        for slot, name, where, kind, what in incidents:
            if kind == "error" and len(lists) > 1:
                what.add_note(f"(raised on rank {rank} of {len(lists)})")
            found.setdefault((slot, where, kind, str(what)), (slot, name, where, kind, what))
    return sorted(found.values(), key=lambda i: i[0])


def act(incidents: list[Incident]) -> None:
    """Give the warnings and raise the first exception, as the user's filters and ``np.errstate`` say."""
    for _, name, where, kind, what in incidents:
        try:
            if kind == "error":
                raise what
            if kind == "warning":
                tell(what[0](what[1]), where)
            else:
                _floating(f"{what} encountered in {name}", what, where)
        except Exception as error:
            error.add_note(f"while computing {name!r}, built at {where[0]}:{where[1]}")
            raise agreed(error) from None


def _floating(text: str, what: str, where: tuple[str, int]) -> None:
    category = _CATEGORIES[what]
    mode = dict(np.geterr())[category]
    if mode == "raise":
        raise FloatingPointError(text)
    if mode == "warn":
        tell(RuntimeWarning(text), where)
    handler: Any = np.geterrcall()
    if mode == "call":
        handler(what, {"divide": 1, "over": 2, "under": 4, "invalid": 8}[category])
    elif mode == "log":
        handler.write(f"Warning: {text}\n")
    elif mode == "print":
        print(f"Warning: {text}")


def tell(message: Warning, where: tuple[str, int]) -> None:
    """Give a warning that every rank gives, at the user's line."""
    agreed(message)
    warnings.warn_explicit(message, type(message), where[0], where[1], registry=_registries.setdefault(where[0], {}))
