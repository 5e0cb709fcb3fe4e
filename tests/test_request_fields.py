"""`docs/request.md` is printed from the catalogue, which has each field that a request's record can have."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from inference_logging.read.segments.columns import FIELDS, Field

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "request.md"
HEAD: Final = """\
# The record of a request

Printed by `python tests/test_request_fields.py`; a test fails while this file says something else.

The server's fields come first, in the order of the line; Triton's precede an exception. The listener reads its fields
from bodies, derives them, or takes them from headers ([records.md](records.md), [texts.md](texts.md),
[identity.md](identity.md)). A field without a value is left out. Types are those of `inference-logging query`, units
are UCUM's.

"""


def _table(source: str) -> str:
    shown = [field for field in FIELDS.values() if field.source == source and field.kind]
    return "| field | type | unit | meaning |\n|---|---|---|---|\n" + "".join(map(_row, shown))


def _row(field: Field) -> str:
    return f"| `{field.name}` | {field.kind} | {field.unit} | {field.meaning} |\n"


def page() -> str:
    """Return the page as it has to be."""
    return f"{HEAD}## From the server\n\n{_table('server')}\n## From the listener\n\n{_table('listener')}"


def test_the_page_says_what_each_field_means() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tests/test_request_fields.py > docs/request.md"


def test_each_field_has_a_source_and_a_meaning() -> None:
    assert {field.source for field in FIELDS.values()} == {"head", "server", "listener", "log", "resource", "event"}
    assert all(field.meaning.endswith((".", "…")) and "|" not in field.meaning for field in FIELDS.values())


def test_the_listener_writes_no_key_of_its_own_that_the_catalogue_does_not_have() -> None:
    sources = [path for path in (ROOT / "native" / "lines" / "src").glob("**/*.rs") if path.name != "catalogue.rs"]
    text = "".join(path.read_text(encoding="utf-8").partition("#[cfg(test)]")[0] for path in sources)
    written = set(re.findall(r'b?r#",?"(gen_ai\.(?:request|response|usage)\.[a-z_.]+|form\.\w+|file\.\w+)":', text))
    assert not written, "a derived field takes its key from `catalogue::derived`"


if __name__ == "__main__":
    sys.stdout.write(page())
