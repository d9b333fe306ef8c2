"""The exceptions that pypto raises besides the built-in ones and NumPy's ``LinAlgError``."""

__all__ = [
    "BackendUnavailable",
    "ContextError",
    "DivergenceError",
    "GatherError",
    "GatherWarning",
    "MemoryLimitError",
    "PyptoError",
    "VerificationError",
    "WorldError",
]


class PyptoError(Exception):
    """Base class of the library's own exceptions."""


class BackendUnavailable(PyptoError, RuntimeError):
    """A backend was asked for by name and cannot be used; the message says what is missing."""


class MemoryLimitError(PyptoError, MemoryError):
    """A plan would need more bytes on a device than ``memory_limit`` allows; nothing has run."""


class DivergenceError(PyptoError, RuntimeError):
    """The ranks built different programs, so their collectives would not match."""


class WorldError(PyptoError, RuntimeError):
    """The world of ranks has ended: a rank died, or the ranks can no longer meet."""


class ContextError(PyptoError, RuntimeError):
    """An array was used outside the context that it belongs to."""


class GatherWarning(UserWarning):
    """An operation collects a large distributed array on one rank, for want of a distributed algorithm."""


class GatherError(PyptoError, RuntimeError):
    """What :class:`GatherWarning` warns of, under ``config(strict=True)``."""


class VerificationError(PyptoError, ArithmeticError):
    """A result does not belong to its operands: hardware, memory or a library has failed without saying so."""
