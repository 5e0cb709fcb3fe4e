"""ClickHouse's HTTP interface before its embedded engine, chdb: a process of its own, which can be killed and go on.

Runs in the environment of `make clickhouse`. The engine has no server, so that the interface is the test's: a statement
in the body (gzip or plain), settings and the database as parameters of the URL, user and password as headers, and an
exception with its code. The rest (parsing, tables, deduplication, views) is the engine's.

A word in the file ``fault`` is done to the next insert: ``die-before`` and ``die-after`` it is executed, ``hold`` its
answer back until the client is gone, ``break-after`` it closes the connection. Three digits are a status to answer.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from chdb.session import Session

_STATUS: Final = {16: 404, 26: 400, 27: 400, 60: 404, 62: 400, 81: 404, 117: 400, 469: 500, 497: 403, 516: 403}
"""Of an exception's code, as far as the tests see them; 500 is that of the others."""
_FAULTS: Final = re.compile(r"die-before|die-after|hold|break-after|\d{3}")


class Engine:
    """The engine with its data in ``directory``; it executes one statement at a time."""

    def __init__(self, directory: Path) -> None:
        self._session, self._lock = Session(str(directory)), threading.Lock()

    def execute(self, statement: str, database: str, settings: dict[str, str]) -> str:
        """Return the answer, separated by tabs. Raises RuntimeError with the exception's text."""
        given = {"insert_deduplication_token": "", **settings}
        values = (f"{name} = '{value}'" for name, value in given.items() if name != "wait_end_of_query")
        with self._lock:
            self._session.query(f"USE `{database}`")
            self._session.query(f"SET {', '.join(values)}")
            return str(self._session.query(statement, "TabSeparated"))


class Handler(BaseHTTPRequestHandler):
    """One request; ``engine``, ``folder``, ``user`` and ``key`` are set before the server is made."""

    protocol_version = "HTTP/1.1"
    engine: Engine
    folder: Path
    user: str
    key: str

    def do_GET(self) -> None:
        self._answer(200, "Ok.\n")

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        settings = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        database = settings.pop("database", "default")
        given = (self.headers.get("X-ClickHouse-User", "default"), self.headers.get("X-ClickHouse-Key", ""))
        if given != (self.user, self.key):
            self._fail(f"Code: 516. DB::Exception: {given[0]}: Authentication failed. (AUTHENTICATION_FAILED)")
            return
        fault = self._fault() if content.startswith(b"INSERT") else ""
        if fault == "die-before":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.isdecimal():
            self._answer(int(fault), "busy\n")
            return
        try:
            answer = self.engine.execute(content.decode(), database, settings)
        except RuntimeError as error:
            self._fail(str(error))
            return
        if fault == "die-after":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hold":
            (self.folder / "held").touch()
            self.rfile.read(1)
        if fault in ("hold", "break-after"):
            self.close_connection = True
            return
        self._answer(200, answer)

    def _fault(self) -> str:
        path = self.folder / "fault"
        try:
            word = path.read_text()
        except FileNotFoundError:
            return ""
        path.unlink()
        assert _FAULTS.fullmatch(word), word
        return word

    def _fail(self, text: str) -> None:
        found = re.search(r"Code: (\d+)", text)
        code = int(found[1]) if found else 0
        self._answer(_STATUS.get(code, 500), text, **{"X-ClickHouse-Exception-Code": str(code)})

    def _answer(self, status: int, text: str, **headers: str) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


def main() -> None:
    """Serve: FOLDER PORT USER KEY."""
    folder, port, user, key = sys.argv[1:]
    Handler.folder, Handler.user, Handler.key = Path(folder), user, key
    Handler.engine = Engine(Path(folder) / "data")
    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
