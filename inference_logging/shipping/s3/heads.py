"""The records of a Parquet file as lines of a segment, as far as the verification of segments reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson

from inference_logging.errors import CorruptLineError, MissingExtraError
from inference_logging.shipping.s3.table import OTHER

_HEAD = ("severity_text", "event_name", "boot_id", "pid", "seq")
_ROWS = 1000


def records(path: Path) -> Iterator[bytes]:
    """Iterate over the rows. Raises ``CorruptLineError``, ``MissingExtraError``."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("verifying Parquet", "duckdb", "query") from None
    try:
        connection = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false", "threads": "1"})
        answer = connection.execute(
            f"SELECT strftime(\"timestamp\", '%Y-%m-%dT%H:%M:%S.%f'), {', '.join(_HEAD)}, CAST({OTHER} AS VARCHAR) "
            "FROM read_parquet(?)",
            [str(path)],
        )
        while rows := answer.fetchmany(_ROWS):
            for time, *head, other in rows:
                known = {name: value for name, value in zip(_HEAD, head, strict=True) if value is not None}
                line = {**({"timestamp": f"{time}000Z"} if time else {}), **known}
                yield orjson.dumps({**line, **(orjson.loads(other) if other else {})})
        connection.close()
    except duckdb.Error as error:
        raise CorruptLineError(str(path), 0, str(error)) from None
