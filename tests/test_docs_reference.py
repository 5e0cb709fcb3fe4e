"""`docs/commands.md` and `docs/metrics.md` are written from the code."""

from __future__ import annotations

import asyncio
import copy
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest

from inference_logging import Config, InferenceLoggingMiddleware, Logger
from inference_logging.cli.main import COMMANDS, EXIT_CODES
from inference_logging.cli.main import command as root
from inference_logging.metrics import metrics_of
from inference_logging.record.health import Watch
from inference_logging.record.integrations.vllm.records import REQUEST_FIELDS
from inference_logging.record.integrations.vllm.stats import SPECULATION_FIELDS, STATS_FIELDS
from inference_logging.record.started import FIELDS as STARTED_FIELDS
from tests.shown import source

DOCS: Final = Path(__file__).parent.parent / "docs"
_PRINTED: Final = (
    "Printed by `python tests/test_docs_reference.py {}`; a test fails while this file says something else."
)
_WIDTH: Final = 100
_ABOUT: Final = (
    "A counter's samples end with `_total`. They are served as [health-and-metrics.md](health-and-metrics.md) says. "
    "Those of requests and engines are there once there was such a request or record; those of times in the "
    "engine (`inference_logging_engine_queue_time_seconds`, `…_prefill_time_seconds`, `…_decode_time_seconds`) come "
    "with `engine_records`."
)


def commands() -> str:
    """Return the page of commands: each with its help."""
    lines = ["# Commands", "", _PRINTED.format("commands"), "", "| command | |", "|---|---|"]
    lines += [f"| [`{name}`](#{name}) | {entry.summary} |" for name, entry in COMMANDS.items()]
    lines += ["", "| exit code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    context = click.Context(root, info_name="inference-logging", **root.context_settings)
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None
        lines += ["", f"## {name}", *_help(command, name, context)]
        if isinstance(command, click.Group):
            own = click.Context(command, info_name=name, parent=context)
            for inner in command.list_commands(own):
                found = command.get_command(own, inner)
                assert found is not None
                lines += ["", f"### {name} {inner}", *_help(found, inner, own)]
    return "\n".join(lines) + "\n"


def _help(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    command = copy.copy(command)
    command._help_option = None  # another test may have shown it without its group
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        **command.context_settings,
    )
    yield from ("", "```text", *(line.rstrip() for line in command.get_help(context).splitlines()), "```")


def metrics() -> str:
    """Return the page of metrics: each family with its kind, unit and meaning."""
    with tempfile.TemporaryDirectory() as folder:
        tenants = {"record_headers": ("x-tenant=tenant.id",), "metrics_tenants": ("acme",)}
        places = {"directory": Path(folder) / "logs", "queue_directory": Path(folder) / "queues"}
        config = Config(**places, **tenants, audit="on")
        with Logger(config) as logger:
            _stream(config)
            logger.event("engine.stats", STATS_FIELDS)(0, 10.0, 1, 0, 0.5, *[None] * (len(STATS_FIELDS) - 5))
            assert logger.flush(60)
            found = metrics_of(logger, Watch(config, logger.service, audit=logger.audit_service)).families()
    lines = ["# Metrics", "", _PRINTED.format("metrics"), ""]
    lines.append(_ABOUT)
    lines += ["", "| name | kind | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {unit} | {meaning} |" for name, kind, unit, meaning, _ in sorted(found)]
    return "\n".join(lines) + "\n"


def _stream(config: Config) -> None:
    """Serve a stream that has something in each histogram of requests, of a tenant."""
    json, stream = (b"content-type", b"application/json"), (b"content-type", b"text/event-stream")
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [json, (b"x-tenant", b"acme")],
    }
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}\n\n'
    parts = [b'data: {"model": "m"}\n\n'] * 3 + [usage, b""]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"model": "m", "stream": true}'}

    async def send(_message: object) -> None:
        await asyncio.sleep(0.001)  # a moment between two chunks

    async def app(_scope: object, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [stream]})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": bool(part)})

    asyncio.run(InferenceLoggingMiddleware(app, config)(scope, receive, send))


PAGES: Final = {"commands": commands, "metrics": metrics}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_says_what_the_code_says(name: str) -> None:
    page = DOCS / f"{name}.md"
    assert page.read_text(encoding="utf-8") == PAGES[name](), f"python tests/test_docs_reference.py {name} > {page}"


def test_no_help_shows_the_mark_that_keeps_a_list_as_it_stands() -> None:
    assert r"\b" not in commands()


def test_no_parameter_has_an_empty_unit() -> None:
    assert " ()" not in (DOCS / "parameters.md").read_text(encoding="utf-8")


FORMATS: Final = {
    "queue files": ("native/queue/src/layout.rs", "VERSION"),
    "segments": ("native/segments/src/segment.rs", "SCHEMA_VERSION"),
    "the control page of a queue directory": ("native/queue/src/control.rs", "VERSION"),
    "changes by `ctl`": ("native/request/src/runtime.rs", "VERSION"),
    "counts for metrics": ("native/lines/src/series.rs", "VERSION"),
    "the table of records": ("inference_logging/read/table/cache.py", "VERSION"),
    "how far a shipper has come": ("inference_logging/ship/offsets.py", "VERSION"),
    "manifests of objects in a bucket": ("inference_logging/ship/s3/manifest.py", "VERSION"),
    "the statement of an export": ("inference_logging/read/export/statement.py", "VERSION"),
    "configuration files": ("inference_logging/record/config/config.py", "FILE_VERSION"),
    "the C library's interface": ("native/c/src/log.rs", "ABI_VERSION"),
}


@pytest.mark.parametrize("what", FORMATS)
def test_the_version_of_a_format_is_that_of_the_code(what: str) -> None:
    path, name = FORMATS[what]
    (version,) = re.findall(rf"^(?:pub )?(?:const )?{name}(?:: (?:u32|Final))? = (\d+);?$", source(path), re.MULTILINE)
    page = (DOCS / "upgrading.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {re.escape(what)}(?:, ([^|]+))? \| (\d+) \|", page, re.MULTILINE)
    assert row[1] == version
    assert not re.search(r"-\d", row[0]) or row[0].endswith(f"-{version}`")


def test_the_page_has_no_format_without_a_version_in_the_code() -> None:
    table = (DOCS / "upgrading.md").read_text(encoding="utf-8").partition("## Formats")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|,]+?)(?:, [^|]+)? \| \d", table, re.MULTILINE)
    assert sorted(rows) == sorted(FORMATS)


def test_the_words_of_the_glossary_are_in_order_and_in_use() -> None:
    words = re.findall(r"^\| ([a-z ]+) \| ", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)[1:]
    assert words == sorted(set(words))
    pages = " ".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md") if path.name != "glossary.md")
    assert [word for word in words if word not in " ".join(pages.split())] == []


def names_in(text: str) -> list[str]:
    return re.findall(r'"([a-z0-9_.]+)"', text)


def fields_in_the_core() -> dict[str, list[str]]:
    """Return the fields of the listener's events and of a chunk's, as the sources have them."""
    native = DOCS.parent / "native"
    event, notice, fields = (
        (native / path).read_text(encoding="utf-8")
        for path in ("queue/src/event.rs", "listen/src/delivery/notice.rs", "request/src/fields.rs")
    )
    lists = {
        name: names_in(text) for name, text in re.findall(r"const (\w+): \[&str; \d+\] = (\[.*?\]);", event, re.DOTALL)
    }
    schemas = re.findall(r'built_in\(\w+, "([a-z.]+)", &(\w+|\[[^]]*\])', event)
    found = {name: lists.get(of) or names_in(of.replace("ADJUSTED_COUNT", '"adjusted_count"')) for name, of in schemas}
    for of, name, direct in re.findall(
        r"(?:let fields = (\[[^]]*\]);\s+)?self\.push\(\"([a-z.]+)\", &(\[[^]]*\]|fields)", notice
    ):
        found[name] = names_in(of if direct == "fields" else direct)
    chunk = fields.partition("pub struct Chunk<'a> {")[2].partition("\n    }")[0]
    found["request.chunk"] = re.findall(r'"([a-z_]+)" =>', chunk)
    source = (
        (native / "request/src/websocket.rs").read_text(encoding="utf-8").partition("FIELDS:")[2].partition("];")[0]
    )
    found["websocket.connection"] = names_in(source)
    return found


def test_the_page_of_events_has_each_with_its_fields() -> None:
    expected = {name: [field for field in of if field != "trace"] for name, of in fields_in_the_core().items()}
    expected["server.started"] = list(STARTED_FIELDS)
    expected["engine.request"] = list(REQUEST_FIELDS)
    expected["engine.stats"] = [*STATS_FIELDS, *SPECULATION_FIELDS]
    page = (DOCS / "events.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z.]+`(?:, `[a-z.]+`)*) \| [^|]+ \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    shown = {
        name: re.findall(r"`([a-z0-9_.]+)`", re.sub(r" \([^)]*\)", "", fields))
        for events, fields in rows
        for name in re.findall(r"`([a-z.]+)`", events)
    }
    own = (DOCS.parent / "native/queue/src/event.rs").read_text(encoding="utf-8")
    own = own.partition("pub const OF_LISTENERS")[2].partition("];")[0]
    assert set(names_in(own)) <= set(shown)
    assert set(shown) == {*expected, "request", "segment.header", "segment.footer"}
    assert {name: shown[name] for name in expected} == expected


if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1]]())
