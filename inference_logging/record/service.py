"""The native service of a lane: its queue, and its listener if this process has one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from inference_logging._native import Service
from inference_logging.errors import OpenError
from inference_logging.record._foreign import report_foreign
from inference_logging.record.settings import settings

if TYPE_CHECKING:
    from inference_logging.record.config import Config

Lane = Literal["fast", "audit"]


def open_service(config: Config, lane: Lane = "fast") -> Service:
    """Open the native service of a lane of ``config``. Raises ``OpenError`` naming the parameter."""
    if lane == "fast":
        report_foreign()
        if (elsewhere := settings(config).passed_over()) is not None:
            sys.stderr.write(f"inference_logging: {elsewhere}\n")
    native = settings(config, queue_directory=str(config.resolved_queue_directory))
    try:
        is_database = lane == "audit" and config.audit_sink == "sqlite"
        return Service(native, lane, writer=database_writer(config) if is_database else None)
    except OSError as error:
        raise OpenError(f"audit lane: {error}" if lane == "audit" else str(error)) from error


def database_writer(config: Config) -> Callable[[bytes | None], None]:
    """Return what writes the audit lane's database. Raises ``OSError`` naming the parameter."""
    from inference_logging.record.audit_sqlite import SqliteWriter  # sqlite3 only where it is asked for

    path = config.resolved_audit_directory / f"{config.service_name}-audit.sqlite"
    key = settings(config).audit_chain_key()
    return SqliteWriter(path, None if config.audit_chain == "off" else config.audit_chain, key)
