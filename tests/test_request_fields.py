"""`docs/request.md` says what each field of a request's record means, and each field that servers give is in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from inference_logging._native import request_fields

PAGE: Final = Path(__file__).parent.parent / "docs" / "request.md"
HEAD: Final = """\
# The record of a request

Printed by `python tests/test_request_fields.py`; a test fails while this file says something else.

These are the fields that servers give, in the order of the line, but those of Triton stand before an exception. A field
without a value is left out. From bodies the listener reads `gen_ai.request.*`, `gen_ai.response.*`, the answer's
`gen_ai.usage.*` and `audio_input_s`, and of forms `form.*` and `file.*`; it adds `body_facts` and `output_withheld`
([records.md](records.md), [texts.md](texts.md)). They stand before `sampled_by`. Headers, members of the body and ids
that the application sets stand before `attributes`: [identity.md](identity.md). Types are those of
`inference-logging query`.

| field | type | meaning |
|---|---|---|
"""


def page() -> str:
    """Return the page as it has to be."""
    return HEAD + "".join(f"| `{name}` | {kind} | {meaning} |\n" for name, kind, meaning in request_fields() if kind)


def test_the_page_says_what_each_field_means() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tests/test_request_fields.py > docs/request.md"


def test_no_field_stands_twice_and_each_has_a_meaning() -> None:
    names = [name for name, _, _ in request_fields()]
    assert len(names) == len(set(names)) > 50
    assert all(meaning.endswith(".") and "|" not in meaning for _, _, meaning in request_fields())


if __name__ == "__main__":
    sys.stdout.write(page())
