"""What a program that uses structlog imports: ``from inference_logging.structlog import to_records``."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, Final, NoReturn

import structlog
from structlog.processors import CallsiteParameter, CallsiteParameterAdder

from inference_logging.record.application import report_refusal
from inference_logging.record.integrations.records import RECORDS
from inference_logging.record.logger import open_tracebacks

__all__ = ["to_records"]

# It knows the caller of an asynchronous method, too.
_PLACE: Final = CallsiteParameterAdder(
    [CallsiteParameter.PATHNAME, CallsiteParameter.LINENO, CallsiteParameter.FUNC_NAME, CallsiteParameter.MODULE],
    additional_ignores=[__name__],
)


def to_records(logger: Any, method_name: str, event_dict: MutableMapping[str, Any]) -> NoReturn:
    """Put an event into the queue: the last of structlog's ``processors``.

    Bound values and the call's fields become attributes, whatever their names, beside the call site and an exception's
    ``exception.*``. Positional arguments are formatted into the message. The record has the logger's name if it has
    one, as those of ``structlog.stdlib.LoggerFactory`` do, else its module's. No error of this package escapes.

    Always raises ``structlog.DropEvent``: nothing comes after this processor.
    """
    try:
        _put(logger, method_name, dict(event_dict))
    except Exception as error:  # noqa: BLE001 - a call that logs never raises
        report_refusal(f"its message and arguments cannot be formatted ({type(error).__name__})")
    raise structlog.DropEvent


def _put(logger: Any, method_name: str, fields: dict[str, Any]) -> None:
    message, arguments = fields.pop("event", None), fields.pop("positional_args", ())
    if arguments:
        named = len(arguments) == 1 and isinstance(arguments[0], dict) and arguments[0]
        message = str(message) % (arguments[0] if named else arguments)
    exception, stack = fields.pop("exc_info", None), fields.pop("stack_info", None)
    place = _PLACE(logger, method_name, {})
    name = getattr(logger, "name", None)
    if stack:
        fields["code.stacktrace"] = open_tracebacks().cut_stack(_stack(logger, method_name))
    number = logging.ERROR if method_name == "exception" else logging.getLevelName(method_name.upper())
    level = number if isinstance(number, int) else logging.INFO
    RECORDS.put(
        name if isinstance(name, str) else str(place["module"]),
        (level, logging.getLevelName(level)),
        message,
        fields,
        place=(place["pathname"], place["lineno"], place["func_name"]),
        exception=exception,
    )


def _stack(logger: Any, method_name: str) -> str:
    rendered = structlog.processors.StackInfoRenderer([__name__])(logger, method_name, {"stack_info": True})
    return str(rendered["stack"])
