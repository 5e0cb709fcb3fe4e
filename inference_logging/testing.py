"""For the tests of applications: what was recorded, as a list, without configuration, directories or waiting.

>>> from fastapi import FastAPI
>>> from fastapi.testclient import TestClient
>>> from inference_logging import InferenceLoggingMiddleware, get_logger
>>> from inference_logging.testing import capture_records
>>> app = FastAPI()
>>> app.add_middleware(InferenceLoggingMiddleware)
>>> @app.get("/hello/{name}")
... async def hello(name: str) -> str:
...     get_logger("greeter").info("greeting", name=name)
...     return name
>>> with capture_records() as records:
...     response = TestClient(app).get("/hello/world")
>>> [request["http.route"] for request in records.requests]
['/hello/{name}']
>>> [(log["message"], log["attributes"]) for log in records.logs]
[('greeting', {'name': 'world'})]

The application needs no change and no configuration: while records are captured, every middleware and every application
logger of the process records there, whatever its configuration says about sinks and directories. What it says about
requests (``chunks``, ``sample_ratio``, …) still applies. A ``Logger`` that the application opens itself is left alone;
give it ``records.logger`` instead.

As a pytest fixture: ``pytest_plugins = ["inference_logging.pytest_plugin"]`` in the root ``conftest.py`` brings
``inference_logging_records``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, overload

from inference_logging.errors import InferenceLoggingError
from inference_logging.read.segments import Record, read_records
from inference_logging.record.asgi.middleware import reopen_all
from inference_logging.record.config import Config
from inference_logging.record.logger import Logger

__all__ = ["Records", "capture_records"]


class Records(Sequence[Record]):
    """The records captured so far, in the order of writing: parsed lines, with OpenTelemetry's names.

    Reading it in any way first waits until everything accepted before is there, so a test can assert right after the
    request. It stays readable after the capture.
    """

    def __init__(self, logger: Logger, directory: Path) -> None:
        """Read what ``logger`` writes to ``directory``; use ``capture_records``."""
        self.logger = logger
        self._directory = directory
        self._records: list[Record] = []
        self._ended = False

    @property
    def requests(self) -> list[Record]:
        """The terminal records of requests."""
        return self.named("request")

    @property
    def logs(self) -> list[Record]:
        """The application's own records, including those of standard-library loggers through ``Handler``."""
        return self.named("log")

    def named(self, event: str) -> list[Record]:
        """Return the records of one event, as registered with ``Logger.event``."""
        return [record for record in self if record["event_name"] == event]

    def flush(self, deadline_s: float = 10.0) -> None:
        """Wait until everything accepted before this call can be read.

        Raises InferenceLoggingError if it isn't after ``deadline_s``.
        """
        if self._ended:
            return
        if not self.logger.flush(deadline_s):
            raise InferenceLoggingError(f"the records are not written after deadline_s={deadline_s}")
        lanes = [self._directory, self.logger.config.resolved_audit_directory]
        self._records = [record for directory in lanes if directory.exists() for record in read_records(directory)]

    def end(self) -> None:
        """Read what there is for the last time."""
        self.flush()
        self._ended = True

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        """Return one record, or some."""
        self.flush()
        return self._records[index]

    def __len__(self) -> int:
        """Return their number."""
        self.flush()
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over those that there are now."""
        self.flush()
        return iter(list(self._records))

    def __repr__(self) -> str:
        """Show them, as a failed assertion does."""
        self.flush()
        return f"Records({self._records!r})"


@contextmanager
def capture_records(**parameters: Any) -> Iterator[Records]:
    """Capture what this process records within the context, in temporary directories.

    ``parameters`` are those of ``Config``; the environment and the configuration file are not read. ``level`` is
    ``DEBUG`` unless given. Captures can be nested; the innermost takes all. Raises ConfigError for a wrong parameter.
    """
    with tempfile.TemporaryDirectory(prefix="inference_logging-") as temporary:
        directory = Path(temporary) / "segments"
        own = {"directory": directory, "queue_directory": Path(temporary) / "queues", "service_name": "test"}
        config = _IsolatedConfig(**{**_DEFAULTS, **parameters, **own})
        logger = _CapturingLogger(config)
        try:
            reopen_all()
            records = Records(logger, directory)
            yield records
            records.end()
        finally:
            reopen_all()
            logger.close()
            Logger.make_newest_current()


# Room for whatever an application's own configuration lets a record be.
_DEFAULTS = {"level": "DEBUG", "queue_bytes": "16MiB", "max_record_bytes": "4MiB", "flush_interval_s": 0.05}


class _IsolatedConfig(Config):
    """A configuration of keywords alone: a developer's own variables don't change a test."""

    @classmethod
    def _sources(cls, keywords: Mapping[str, Any]) -> dict[str, Any]:
        return dict(keywords)


class _CapturingLogger(Logger):
    """The logger of every middleware and application logger, whatever configuration they ask for."""

    def serves(self, config: Config) -> bool:  # noqa: ARG002 - whatever it is
        return True

    def _begin_as_current(self) -> None:
        # What was logged before is the application's, and waits for its own logger.
        self._make_current()
