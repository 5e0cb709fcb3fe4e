"""The catalogue has each field that a record can have, with its source and its meaning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from inference_logging.read.segments.columns import FIELDS

ROOT: Final = Path(__file__).parent.parent


def test_each_field_has_a_source_and_a_meaning() -> None:
    assert {field.source for field in FIELDS.values()} == {"head", "server", "listener", "log", "resource", "event"}
    assert all(field.meaning.endswith((".", "…")) and "|" not in field.meaning for field in FIELDS.values())


def test_the_listener_writes_no_key_of_its_own_that_the_catalogue_does_not_have() -> None:
    sources = [path for path in (ROOT / "native" / "lines" / "src").glob("**/*.rs") if path.name != "catalogue.rs"]
    text = "".join(path.read_text(encoding="utf-8").partition("#[cfg(test)]")[0] for path in sources)
    written = set(re.findall(r'b?r#",?"(gen_ai\.(?:request|response|usage)\.[a-z_.]+|form\.\w+|file\.\w+)":', text))
    assert not written, "a derived field takes its key from `catalogue::derived`"
