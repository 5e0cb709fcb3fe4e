"""Errors raised early: while configuring, opening and reading. The request path never raises."""

from __future__ import annotations

from collections.abc import Iterable


class InferenceLoggingError(Exception):
    """Base of every error this package raises."""


class ConfigError(InferenceLoggingError, ValueError):
    """A configuration that can't be used.

    Raised while a ``Config`` is built. Retrying can't help: the value has to be changed. ``problems`` holds one
    sentence per wrong value (each names the parameter, where its value came from, the value and what is allowed),
    and the message shows all of them, so that one restart is enough to mend several mistakes.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        """Collect ``problems`` into one message."""
        self.problems = tuple(problems)
        super().__init__("\n".join(("inference_logging is configured wrongly:", *(f"  {p}" for p in self.problems))))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[str, ...]]]:
        """Rebuild from the problems, so that a worker process can hand the error to its parent."""
        return type(self), (self.problems,)


class OpenError(InferenceLoggingError, OSError):
    """The queue, the sink or the listener thread cannot be had; the message names the parameter.

    Raised while a ``Logger`` is opened. Retrying helps once the cause (a full or missing file system, permissions) is
    mended.
    """
