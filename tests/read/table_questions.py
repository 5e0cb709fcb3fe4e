"""Questions that tests ask the table of records, and what Python reads in the lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import orjson

from inference_logging.read.table.table import Table

RESOURCES = {"service.name": "chat", "k8s.pod.name": "pod-1"}


def open_table(directory: Path, cache: Path) -> Table:
    table = Table([directory], None, cache)
    while not table.refresh(10)["done"]:
        pass
    return table


def ask(table: Table, question: str, **query: Any) -> Any:
    return json.loads(orjson.dumps(getattr(table, question)(query)))


def found(table: Table, **query: Any) -> set[str]:
    """Return the keys of all pages."""
    keys: set[str] = set()
    answer = ask(table, "rows", limit=50, **query)
    while True:
        page = [row["key"] for row in answer["rows"]]
        assert not keys & set(page), "a row came twice"
        keys |= set(page)
        if answer["next"] is None:
            assert answer["complete"]
            return keys
        answer = ask(table, "rows", limit=50, after=answer["next"], **query)


def lines_of(path: Path, resource: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the records of a plain segment by their keys, with what its header gives to each."""
    offset, by_key = 0, {}
    for line in path.read_bytes().split(b"\n"):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            record = None
        is_framing = isinstance(record, dict) and (
            record.get("event_name") in ("segment.header", "segment.footer") and "pid" not in record
        )
        if isinstance(record, dict) and not is_framing:
            by_key[f"{path.name}:{offset}"] = {**resource, **record}
        offset += len(line) + 1
    return by_key


def asked(sql: str) -> list[Any]:
    """Return what another program's DuckDB answers."""
    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()
