"""Nothing that a stranger wrote into a record acts on a terminal."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from inference_logging._native import terminal_line
from inference_logging.cli import lines
from inference_logging.read.terminal import as_json, safe, word

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def is_harmless(text: str) -> bool:
    # Cc: control characters, Cf: invisible and reordering ones, Zl and Zp: line breaks, Cs: not encodable.
    bad = [
        c for c in text if unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs") or unicodedata.bidirectional(c) in BIDI
    ]
    return not bad


BIDI = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")


@given(st.text() | st.text("\x00\x1b\x7f\x85\x9b\u202e\u2028\u2066ab \\"))
def test_safe_text_has_no_control_characters_and_stays_on_one_line(text: str) -> None:
    assert is_harmless(safe(text))
    assert is_harmless(word(text))


@given(JSON)
def test_json_for_a_terminal_is_harmless_and_means_the_same(value: Any) -> None:
    written = as_json(value)
    assert is_harmless(written)
    assert json.loads(written) == value


@given(st.dictionaries(st.text(), JSON, max_size=4), st.text(), st.text())
def test_no_record_can_reach_the_terminal_raw_in_columns(rest: dict[str, Any], event: str, message: str) -> None:
    record = {**rest, "timestamp": message, "event_name": event, "severity_text": message, "message": message}
    assert is_harmless(lines.plain(record))
    request = {**record, "event_name": "request", "url.path": message, "outcome": message}
    assert is_harmless(lines.plain(request))
    for one in (record, request):
        assert is_harmless(terminal_line(json.dumps(one).encode(), 1000, False))


def test_half_of_a_surrogate_pair_is_escaped() -> None:
    assert safe("a\ud800b\udfff") == r"a\ud800b\udfff"


def test_ordinary_text_of_any_language_stays_as_it_is() -> None:
    text = "Grüße, 世界, مرحبا, naïve café, 𝒳 ✓"
    assert safe(text) == text
    assert word("héllo/x") == "héllo/x"


def test_a_word_that_could_be_taken_for_several_is_quoted() -> None:
    assert word("a b") == '"a b"'
    assert word("") == '""'
    assert word('say "x"') == r'"say \"x\""'
    assert word("a=b") == '"a=b"'
    assert word(r"a\u001b") == r'"a\\u001b"'


def test_a_character_outside_of_the_basic_plane_is_escaped_as_json_has_it() -> None:
    assert json.loads(f'"{safe(chr(0xE0041))}"') == chr(0xE0041)
