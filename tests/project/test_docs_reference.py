"""Pages that are written from the code, and figures, names and versions of others that are those of the code."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from inference_logging import Config
from inference_logging.read.segments.columns import FIELDS
from inference_logging.record.config.problems import is_size
from inference_logging.record.config.reference import size
from inference_logging.record.integrations.vllm.records import REQUEST_FIELDS
from inference_logging.record.integrations.vllm.stats import SPECULATION_FIELDS, STATS_FIELDS
from inference_logging.record.started import FIELDS as STARTED_FIELDS
from loadtests.view import bench_view
from tests.c.test_c_embedded import LARGEST_LIBRARY_BYTES, LARGEST_MEMORY_KB
from tests.kit.shown import PAGES as ALL_PAGES
from tests.kit.shown import source
from tools.reference import PAGES, commands

DOCS: Final = Path(__file__).parents[2] / "docs"
HEADER: Final = (DOCS.parent / "native" / "c" / "include" / "inferlog.h").read_text(encoding="utf-8")


def prose(page: str) -> str:
    """Return a page as one line."""
    return " ".join(ALL_PAGES[page].split())


@pytest.mark.parametrize("name", PAGES)
def test_the_page_says_what_the_code_says(name: str) -> None:
    page = DOCS / f"{name}.md"
    assert page.read_text(encoding="utf-8") == PAGES[name](), f"python -m tools.reference {name} > {page}"


def test_no_help_shows_the_mark_that_keeps_a_list_as_it_stands() -> None:
    assert r"\b" not in commands()


def test_a_size_in_the_reference_is_one_that_a_file_takes() -> None:
    sizes = {name: field.default for name, field in Config.model_fields.items() if is_size(field)}
    as_written = {name: size(default) for name, default in sizes.items()}
    assert as_written["queue_bytes"] == "16MiB"
    assert Config(**as_written).model_dump(include=set(sizes)) == sizes


def test_no_parameter_has_an_empty_unit() -> None:
    assert " ()" not in (DOCS / "parameters.md").read_text(encoding="utf-8")


FORMATS: Final = {
    "queue files": ("native/queue/src/layout.rs", "VERSION"),
    "segments": ("native/segments/src/segment.rs", "SCHEMA_VERSION"),
    "the control page of a queue directory": ("native/queue/src/control.rs", "VERSION"),
    "changes by `ctl`": ("native/request/src/runtime.rs", "VERSION"),
    "counts for metrics": ("native/lines/src/series.rs", "VERSION"),
    "the table of records": ("inference_logging.read.table.cache", "VERSION"),
    "how far a shipper has come": ("inference_logging.ship.offsets", "VERSION"),
    "manifests of objects in a bucket": ("inference_logging.ship.s3.manifest", "VERSION"),
    "the statement of an export": ("inference_logging.read.export.statement", "VERSION"),
    "configuration files": ("inference_logging.record.config.config", "FILE_VERSION"),
    "the C library's interface": ("native/c/src/log.rs", "ABI_VERSION"),
}


@pytest.mark.parametrize("what", FORMATS)
def test_the_version_of_a_format_is_that_of_the_code(what: str) -> None:
    place, name = FORMATS[what]
    if place.endswith(".rs"):
        (version,) = re.findall(rf"^(?:pub )?const {name}: u32 = (\d+);$", source(place), re.MULTILINE)
    else:
        version = str(getattr(importlib.import_module(place), name))
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
    own = own.partition("const OF_LISTENERS")[2].partition("];")[0]
    assert set() < set(names_in(own)) <= set(shown)
    assert set(shown) == {*expected, "request", "segment.header", "segment.footer"}
    assert {name: shown[name] for name in expected} == expected


def test_each_field_has_a_source_and_a_meaning() -> None:
    assert {field.source for field in FIELDS.values()} == {"head", "server", "listener", "log", "resource", "event"}
    assert all(field.meaning.endswith((".", "…")) and "|" not in field.meaning for field in FIELDS.values())


def test_the_page_of_c_names_nothing_that_the_header_has_not() -> None:
    found = re.findall(r"\b(?:inferlog|INFERLOG)_\w*\w\b", (DOCS / "c.md").read_text(encoding="utf-8"))
    names = {name.rstrip("_") for name in found} - {"INFERLOG_EVENT", "INFERLOG_1"}  # of inferlog.hpp, and of symbols
    assert [name for name in sorted(names) if name not in HEADER] == []


def test_each_function_of_the_library_has_a_comment() -> None:
    functions = re.findall(r"(\*/\n)?^[a-z][\w *]*?\b(inferlog_\w+)\([^;{]*\);", HEADER, re.MULTILINE)
    assert len(functions) > 20
    assert [name for comment, name in functions if not comment] == []


@pytest.mark.servers
def test_the_table_has_the_share_of_a_segment_that_pages_say(tmp_path: Path) -> None:
    segments, cache = tmp_path / "segments", tmp_path / "cache"
    bench_view.make(segments, bench_view.SEGMENT_BYTES)
    index = ["index", str(segments), "--cache-directory", str(cache)]
    subprocess.run([sys.executable, "-m", "inference_logging.cli.main", *index], check=True, capture_output=True)
    plain = sum(path.stat().st_size for path in segments.glob("*.jsonl"))
    share = sum(path.stat().st_size for path in cache.rglob("*.parquet")) / plain
    assert f"about {round(share * 100) * 10} MB for each GB of plain segments" in prose("docs/segment-index.md")
    assert f"about {share * 100:.0f} % of its plain size" in prose("docs/commands.md").replace("%", " %").replace(
        "  ", " "
    )


def test_bounds_of_a_page_are_those_of_the_test_or_command() -> None:
    text = prose("docs/c.md")
    assert f"at most {LARGEST_LIBRARY_BYTES // 1000} KB there" in text
    assert f"at most {LARGEST_MEMORY_KB} KB of memory beside its code" in text
    index = prose("docs/segment-index.md")
    assert f"makes {bench_view.DEFAULT_BYTES / 1e9:.0f} GB of segments" in index
    assert f"first rows in {bench_view.FIRST_ROWS_S:.0f} s" in index
    assert f"{bench_view.MOST_MB} MB resident" in index
