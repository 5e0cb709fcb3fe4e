"""What a program that uses loguru imports: ``from inference_logging.loguru import to_records``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_logging.record.application import report_refusal
from inference_logging.record.integrations.records import RECORDS

if TYPE_CHECKING:
    from loguru import Message

__all__ = ["to_records"]


def to_records(message: Message) -> None:
    """Put a message into the queue: a sink, ``logger.add(to_records, level="INFO")``.

    Bound values and the call's fields become attributes, whatever their names, beside the call site and an exception's
    ``exception.*``. The record has the name of the calling module. Never raises.
    """
    try:
        record = message.record
        level, name = record["level"], record["name"]
        RECORDS.put(
            name if name is not None else record["module"],
            (level.no, level.name),
            record["message"],
            {str(field): value for field, value in record["extra"].items()},
            place=(record["file"].path, record["line"], record["function"]),
            exception=record["exception"],
        )
    except Exception as error:  # noqa: BLE001 - a call that logs never raises
        report_refusal(f"its record cannot be read ({type(error).__name__})")
