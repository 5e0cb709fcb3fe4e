"""The native service of a lane: its queue, and its listener if this process has one.

Internal: users import nothing from here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from inference_logging import origin
from inference_logging._foreign import report_foreign
from inference_logging._native import Service, Settings
from inference_logging.errors import OpenError
from inference_logging.settings import settings

if TYPE_CHECKING:
    from inference_logging.config import Config

Lane = Literal["fast", "audit"]


def open_service(config: Config, lane: Lane = "fast", *, claims: bool = True, only_listens: bool = False) -> Service:
    """Open the native service of a lane of ``config``. Raises ``OpenError`` naming the parameter.

    Without ``claims`` the queue directory may be another configuration's. A process that ``only_listens`` has a queue
    for the listener's own reports alone.
    """
    if lane == "fast":
        report_foreign()
        if (elsewhere := origin.passed_over(config)) is not None:
            sys.stderr.write(f"inference_logging: {elsewhere}\n")
    native = settings(config, queue_directory=str(config.resolved_queue_directory))
    try:
        writer = _writer(config, native) if lane == "audit" else None
        return Service(native, lane, claims=claims, only_listens=only_listens, writer=writer)
    except OSError as error:
        raise OpenError(f"audit lane: {error}" if lane == "audit" else str(error)) from error


def _writer(config: Config, native: Settings) -> Callable[[bytes | None], None] | None:
    """Return the writer of the audit lane's database, if it has one."""
    if config.audit_sink != "sqlite":
        return None
    from inference_logging.audit_sqlite import SqliteWriter  # sqlite3 only where it is asked for

    path = config.resolved_audit_directory / f"{config.service_name}-audit.sqlite"
    return SqliteWriter(path, None if config.audit_chain == "off" else config.audit_chain, native.audit_chain_key())
