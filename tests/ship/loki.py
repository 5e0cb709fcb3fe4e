"""A real Loki, which takes OTLP, and the log records that it gives back."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.kit.servers import free_port
from tests.ship.programs import Program
from tests.tools.tools import tool

MOST: Final = 100_000
_HOUR: Final = 3_600_000_000_000


class Entry(NamedTuple):
    """A line, its time, and its labels and structured metadata."""

    unix_nano: int
    line: str
    labels: dict[str, str]


class Loki(Program):
    """A Loki that keeps everything below ``directory``."""

    def __init__(self, directory: Path) -> None:
        binary = tool("loki")
        directory.mkdir()
        self._port = free_port()
        data = directory / "data"
        config: dict[str, Any] = {
            "auth_enabled": False,
            "server": {
                "http_listen_address": "127.0.0.1",
                "http_listen_port": self._port,
                "grpc_listen_address": "127.0.0.1",
                "grpc_listen_port": free_port(),
                "log_level": "warn",
                # Answers to queries pass between its parts in one message.
                "grpc_server_max_recv_msg_size": 256 << 20,
                "grpc_server_max_send_msg_size": 256 << 20,
            },
            "memberlist": {"bind_addr": ["127.0.0.1"], "bind_port": free_port()},
            "common": {
                "instance_addr": "127.0.0.1",
                "path_prefix": str(data),
                "storage": {"filesystem": {"chunks_directory": f"{data}/chunks", "rules_directory": f"{data}/rules"}},
                "replication_factor": 1,
                "ring": {"instance_addr": "127.0.0.1", "kvstore": {"store": "inmemory"}},
            },
            "schema_config": {
                "configs": [
                    {
                        "from": "2024-01-01",
                        "store": "tsdb",
                        "object_store": "filesystem",
                        "schema": "v13",
                        "index": {"prefix": "index_", "period": "24h"},
                    }
                ]
            },
            "analytics": {"reporting_enabled": False},
            "limits_config": {"allow_structured_metadata": True, "max_entries_limit_per_query": MOST},
        }
        file = directory / "loki.yaml"
        file.write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
        super().__init__([binary, f"-config.file={file}"], directory / "log", self._answers)

    @property
    def url(self) -> str:
        """Where it takes OTLP, without the path of the signal."""
        return f"http://127.0.0.1:{self._port}/otlp"

    def _answers(self) -> bool:
        try:
            return bool(self._get("/ready") == b"ready\n")
        except OSError:  # as an answer other than 200 is, too
            return False

    def entries(self) -> list[Entry]:
        """Return everything of the last hour."""
        now = time.time_ns()
        asked = {"query": '{service_name=~".+"}', "start": now - _HOUR, "end": now + _HOUR, "limit": MOST}
        answer = json.loads(self._get(f"/loki/api/v1/query_range?{urllib.parse.urlencode(asked)}"))
        return list(_entries(answer["data"]["result"]))

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=180) as answer:
            content: bytes = answer.read()
            return content


def _entries(streams: list[dict[str, Any]]) -> Iterator[Entry]:
    for stream in streams:
        for unix_nano, line in stream["values"]:
            yield Entry(int(unix_nano), line, stream["stream"])
