"""The application: its addresses, and what it says where something is wrong."""

from __future__ import annotations

import json
import mimetypes
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from inference_logging.errors import MissingExtraError
from inference_logging.read.table.table import Table
from inference_logging.read.view import queries
from inference_logging.read.view.compare import compare
from inference_logging.read.view.export import Exports, Made, archive, known_format
from inference_logging.read.view.export import content as content_of
from inference_logging.read.view.fields import Conditions, fields_with_meaning, grouped, values
from inference_logging.read.view.links import Link
from inference_logging.read.view.live import Arrivals, Live
from inference_logging.read.view.logging_itself import Itself, Verified
from inference_logging.read.view.queries import Check, Query, QueryError, asked, bounded
from inference_logging.read.view.record import GoneRecordError, Records
from inference_logging.read.view.workers import BusyError, GoneError, Refresher, Workers

_QUERY_THREADS: Final = 4
_SLOW_THREADS: Final = 2
_VERIFY_WAIT_S: Final = 20.0
_LONGEST_STATEMENT: Final = 16 << 10
_WING: Final = Path(__file__).parent.parent
STATIC: Final = _WING / "view" / "static"
SHARED_STATIC: Final = _WING / "pages" / "static"
_MEDIA_TYPES: Final = {".js": "text/javascript", ".css": "text/css"}
"""Some machines' own table calls scripts something that browsers do not run."""
_CLIENT_LEFT: Final = 499


class Content(NamedTuple):
    """What the application shows."""

    directories: tuple[Path, ...]
    prefixes: tuple[str, ...] | None
    links: tuple[Link, ...]
    config_file: Path | None = None

    def verify_arguments(self) -> list[str]:
        """Return the command line of the `verify` that reads the same segments."""
        options = [f"--prefix={name}" for name in self.prefixes or ()]
        options += [f"--config={self.config_file}"] if self.config_file is not None else []
        return [*options, "--", *map(str, self.directories)]


class View:
    """The application's state, and its answers."""

    def __init__(self, index: Table, content: Content) -> None:
        self.index, self.content = index, content
        self.conditions = Conditions(index)
        self.refresher = Refresher(index)
        self.workers = Workers("query", _QUERY_THREADS)
        self.live = Live(self.refresher, self.workers)
        self.slow = Workers("slow", _SLOW_THREADS, most_waiting=8)
        self.records = Records(index, content.directories)
        self.verified = Verified(content.verify_arguments())
        self.itself = Itself(index, content.directories, content.prefixes, self.verified)
        self.exports = Exports(index, self.records, content.directories)

    def app(self) -> Starlette:
        """Return the ASGI application; its paths have no token."""
        routes = [
            Route("/", self._page),
            Route("/api/meta", _taking(self._meta)),
            Route("/api/progress", _taking(self._progress)),
            Route("/api/rows", _taking(self._answers(partial(asked, self.index.rows), queries.ROWS), "q")),
            Route("/api/aggregate", _taking(self._answers(self._aggregate, queries.AGGREGATE), "q")),
            Route(
                "/api/values",
                _taking(self._answers(partial(values, self.index), queries.VALUES, required=("field",)), "q"),
            ),
            Route("/api/condition", _taking(self._condition, "text")),
            Route("/api/record", _taking(self._record, "key")),
            Route("/api/live", _taking(self._live, "q")),
            Route("/api/logging", _taking(self._logging)),
            Route("/api/compare", _taking(self._compare, "a", "b")),
            Route("/api/export", _taking(self._export, "q", "format", "statement")),
            Mount("/static/pages", StaticFiles(directory=SHARED_STATIC, check_dir=False)),
            Mount("/static", StaticFiles(directory=STATIC, check_dir=False)),
        ]
        for suffix, media_type in _MEDIA_TYPES.items():
            mimetypes.add_type(media_type, suffix)
        handlers: dict[Any, Any] = {
            QueryError: lambda _, error: answer({"error": str(error)}, 400),
            HTTPException: lambda _, error: answer({"error": error.detail}, error.status_code),
            MissingExtraError: lambda _, error: answer({"error": str(error)}, 400),
            GoneRecordError: lambda _, error: answer({"error": str(error)}, 404),
            BusyError: lambda *_: answer({"error": "too many questions wait for an answer: ask again"}, 503),
            GoneError: lambda *_: Response(status_code=_CLIENT_LEFT),
            Exception: _failed,
        }
        return Starlette(routes=routes, exception_handlers=handlers)

    def start(self) -> None:
        """Begin to index."""
        self.refresher.start()

    def close(self, wait_s: float) -> bool:
        """End; return whether all threads have ended within ``wait_s``."""
        self.live.close()
        self.verified.close()
        self.workers.close()
        self.slow.close()
        return self.refresher.close(wait_s) and self.workers.is_idle() and self.slow.is_idle()

    async def _page(self, _request: Request) -> Response:
        return FileResponse(STATIC / "index.html", media_type="text/html; charset=utf-8")

    async def _meta(self, request: Request) -> Response:
        def meta(_: object) -> dict[str, Any]:
            names = {field: self._named(field) for field in ("service.name", "k8s.pod.name")}
            return {
                "version": _version(),
                "directories": [str(path) for path in self.content.directories],
                "prefixes": list(self.content.prefixes or ()),
                "services": names["service.name"],
                "pods": names["k8s.pod.name"],
                "fields": fields_with_meaning(self.index.fields()),
                "links": [link._asdict() for link in self.content.links],
                "progress": self.refresher.progress,
                "now_ns": str(time.time_ns()),
            }

        return answer(await self.workers.run(request, meta))

    def _named(self, field: str) -> list[str]:
        query = {"field": field, "limit": queries.MOST_ROWS, "budget_s": queries.BUDGET_S}
        try:
            found = self.index.values(query)
        except ValueError:
            return []  # not a field of these segments
        return [one["value"] for one in found if isinstance(one["value"], str)]

    async def _progress(self, _request: Request) -> Response:
        return answer(self.refresher.progress)

    def _answers(
        self, find: Callable[[Query], Any], checks: dict[str, Check], *, required: tuple[str, ...] = ()
    ) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            query = await self._asked(request, checks, required=required)
            return _json(await self.workers.run(request, lambda _: bounded(find(query))))

        return respond

    async def _asked(
        self, request: Request, checks: dict[str, Check], name: str = "q", required: tuple[str, ...] = ()
    ) -> Query:
        """Return the question in a parameter. Raises ``QueryError``, also for a condition on an unknown field."""
        query = queries.read(request.query_params.get(name), checks, name, required)
        if query.get("where"):
            await self.workers.run(request, lambda _: self.conditions.check_fields(query["where"]))
        return query

    def _aggregate(self, query: Query) -> Any:
        if query.get("group_by"):
            return grouped(self.index, query)
        return asked(self.index.aggregate, query)

    async def _condition(self, request: Request) -> Response:
        text = queries.text("text", request.query_params.get("text", ""))
        return answer({"text": await self.workers.run(request, lambda _: self.conditions.check(text))})

    async def _record(self, request: Request) -> Response:
        key = request.query_params.get("key", "")
        found = await self.workers.run(request, lambda _: self.records.whole(key))
        return answer(found)

    async def _live(self, request: Request) -> Response:
        query = await self._asked(request, queries.ROWS)
        seat = self.live.seat()
        content = self.content
        arrivals = await self.workers.run(
            request, lambda _: Arrivals(self.index, content.directories, content.prefixes, query)
        )
        return StreamingResponse(self.live.events(request, arrivals, seat), media_type="text/event-stream")

    async def _logging(self, request: Request) -> Response:
        return answer(await self.slow.run(request, self.itself.answer))

    async def _compare(self, request: Request) -> Response:
        a, b = [await self._asked(request, queries.AGGREGATE, side) for side in ("a", "b")]
        return answer(await self.slow.run(request, partial(compare, self.index, a, b)))

    async def _export(self, request: Request) -> Response:
        query = await self._asked(request, queries.ROWS)
        form = known_format(request.query_params.get("format", ""))
        with_statement = request.query_params.get("statement") == "1"

        def make(given_up: threading.Event) -> Made:
            account = self.verified.look(_VERIFY_WAIT_S) if form != "csv" else {}
            made = self.exports.make(form, query, account, given_up)
            return archive(made) if with_statement else made

        made = await self.slow.run(request, make)
        headers = {
            "content-disposition": f'attachment; filename="{made.name}"',
            "content-length": str(made.bytes),
            "inference-logging-statement": json.dumps(made.statement)[:_LONGEST_STATEMENT],
        }
        return StreamingResponse(content_of(made), media_type=made.media_type, headers=headers)


def _taking(respond: Callable[[Request], Any], *parameters: str) -> Callable[[Request], Any]:
    """Return a handler that refuses other parameters of the URL, which a caller would take for a filter."""

    async def checked(request: Request) -> Response:
        queries.refuse_unknown(request.query_params, parameters)
        found: Response = await respond(request)
        return found

    return checked


def answer(content: object, status: int = 200) -> Response:
    """Return an answer in JSON; numbers stand in it as they are."""
    return _json(orjson.dumps(content, default=str), status)


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type="application/json")


def _failed(_request: Request, error: Exception) -> Response:
    """Answer where this package is at fault; the terminal gets the traceback."""
    traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
    return answer({"error": f"the server failed: {type(error).__name__}; its terminal has the details"}, 500)


def _version() -> str:
    from inference_logging._native import __version__

    return __version__
