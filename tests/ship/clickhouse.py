"""ClickHouse's embedded engine behind its HTTP interface, and what is in its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import pytest

from tests.kit.servers import free_port
from tests.ship.programs import Program, listens

PYTHON: Final = Path(__file__).parents[2] / ".venv-clickhouse" / "bin" / "python"
_SERVER: Final = Path(__file__).with_name("clickhouse_server.py")
USER: Final = "shipper"
KEY: Final = "s3cret"
DATABASE: Final = "logs"


class ClickHouse(Program):
    """The server; its data is in ``folder``, and the database is there."""

    def __init__(self, folder: Path) -> None:
        if not PYTHON.exists():
            pytest.skip("missing: .venv-clickhouse (make clickhouse)")
        folder.mkdir()
        self.folder, self.port = folder, free_port()
        self.headers = folder / "headers"
        self.headers.write_text(f"X-ClickHouse-Key: {KEY}\n")
        command: list[str | Path] = [PYTHON, _SERVER, folder, str(self.port), USER, KEY]
        super().__init__(command, folder / "said", lambda: listens(self.port))

    def start(self) -> None:
        """Start it, and make the database."""
        super().start()
        self.ask(f"CREATE DATABASE IF NOT EXISTS {DATABASE}", database="default")

    def url(self, *, database: str = DATABASE, user: str = USER, options: str = "") -> str:
        """Return what ``ship_to`` says."""
        return f"clickhouse+http://{user}@127.0.0.1:{self.port}/{database}{options}"

    def ask(self, statement: str, *, database: str = DATABASE) -> str:
        """Return the answer to a statement; one that fails, fails the test."""
        answer = httpx.post(
            f"http://127.0.0.1:{self.port}/",
            params={"database": database},
            content=statement.encode(),
            headers={"X-ClickHouse-User": USER, "X-ClickHouse-Key": KEY},
            timeout=120,
        )
        assert answer.status_code == 200, answer.text
        return answer.text

    def rows(self, question: str) -> list[dict[str, Any]]:
        """Return the rows of an answer."""
        settings = "output_format_json_quote_64bit_integers = 0"
        found = self.ask(f"{question} SETTINGS {settings} FORMAT JSONEachRow")
        return [orjson.loads(line) for line in found.splitlines()]

    def number(self, question: str) -> float:
        """Return the one number of an answer."""
        return float(self.ask(question))

    def next_insert(self, fault: str) -> None:
        """Do something to the next insert, see the server."""
        temporary = self.folder / "fault.tmp"
        temporary.write_text(fault)
        temporary.rename(self.folder / "fault")

    def has_done(self) -> bool:
        """Return whether that was done."""
        return not (self.folder / "fault").exists()

    def holds(self) -> bool:
        """Return whether an answer is held back."""
        return (self.folder / "held").exists()
