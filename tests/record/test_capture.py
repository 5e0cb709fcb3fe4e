"""Texts of requests and answers: nothing of them unless configured, and then as much as configured (P11)."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_logging import Config, OpenError
from inference_logging.errors import ConfigError
from tests.kit.signatures import Recording
from tests.kit.support import Recorded, answer, body_messages, http_scope, replying

JSON = b"application/json"
STREAM = b"text/event-stream"
KEY = bytes(range(32))
ON: dict[str, Any] = {"capture_input": "truncated", "capture_output": "truncated"}
SECRET = "swordfish"


def serve(
    recorded: Recorded,
    request: bytes,
    *response: bytes,
    types: tuple[bytes, bytes] = (JSON, JSON),
    headers: tuple[tuple[bytes, bytes], ...] = (),
    path: str = "/v1/chat/completions",
    coding: tuple[bytes, bytes] | None = None,
) -> dict[str, Any]:
    """Serve one POST and return its record."""
    before = len(recorded.records("request"))
    messages = answer(*response, content_type=types[1])
    messages[0]["headers"] += [coding] if coding else []
    app = replying(*messages)
    scope = http_scope(path, "POST", [(b"content-type", types[0]), *headers])
    pieces = [request[at : at + 1000] for at in range(0, len(request), 1000)] or [b""]
    recorded.serve(app, scope, body_messages(*pieces))
    records = recorded.records("request")
    assert len(records) == before + 1
    return records[-1]


def chat(*contents: object) -> bytes:
    messages = [{"role": "user", "content": content} for content in contents]
    return json.dumps({"model": "m", "messages": messages}).encode()


def completion(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()


def sse(*deltas: str) -> list[bytes]:
    chunks = [{"choices": [{"index": 0, "delta": {"content": delta}}]} for delta in deltas]
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


def everything(recorded: Recorded) -> bytes:
    """Return the bytes of all that was written: segments and whatever else lies in their directory."""
    recorded.logger.close()
    return b"".join(path.read_bytes() for path in sorted(recorded.config.directory.rglob("*")) if path.is_file())


def test_prompt_and_answer_stand_in_the_record(recording: Recording) -> None:
    recorded = recording(**ON)
    record = serve(recorded, chat("Say “hi”."), completion("hi"))
    assert record["gen_ai.input.messages"] == [{"role": "user", "parts": [text("Say “hi”.")]}]
    assert record["gen_ai.output.messages"] == [{"role": "assistant", "parts": [text("hi")], "finish_reason": "stop"}]
    assert (record["gen_ai.request.model"], record["gen_ai.response.id"]) == ("m", "c")
    assert "input_truncated" not in record
    assert "output_truncated" not in record


def test_the_deltas_of_a_stream_are_one_text(recording: Recording) -> None:
    record = serve(recording(**ON), chat("?"), *sse("Hel", "lo", " there"), types=(JSON, STREAM))
    assert record["gen_ai.output.messages"] == [{"role": "assistant", "parts": [text("Hello there")]}]


@pytest.mark.parametrize("direction", ["input", "output"])
def test_each_direction_is_captured_by_itself(recording: Recording, direction: str) -> None:
    recorded = recording(**{f"capture_{direction}": "truncated"})
    record = serve(recorded, chat(SECRET), completion(SECRET))
    assert [key for key in record if key.endswith(".messages")] == [f"gen_ai.{direction}.messages"]


def test_off_means_that_no_byte_of_a_text_is_written(recording: Recording) -> None:
    recorded = recording()
    marked = [
        (chat(SECRET), (completion(SECRET),), (JSON, JSON)),
        (chat(SECRET), tuple(sse(SECRET, SECRET)), (JSON, STREAM)),
        (SECRET.encode(), (SECRET.encode(),), (b"text/plain", b"text/plain")),
        (f"a={SECRET}".encode(), (SECRET.encode(),), (b"application/x-www-form-urlencoded", b"image/png")),
        (json.dumps({SECRET: SECRET}).encode(), (json.dumps([SECRET]).encode(),), (JSON, JSON)),
        (b'{"messages":[{"content":"' + SECRET.encode(), (b'{"text":"' + SECRET.encode(),), (JSON, JSON)),
    ]
    for request, response, types in marked:
        serve(recorded, request, *response, types=types)
    assert SECRET.encode() not in everything(recorded)


@pytest.mark.parametrize(
    ("value", "captured"), [(b"1", False), (b"", False), (b"true", False), (b"0", True), (b"No", True)]
)
@pytest.mark.parametrize("mode", ["full", "hash"])
def test_a_client_may_forbid_the_capture_of_its_texts(
    recording: Recording, tmp_path: Path, mode: str, value: bytes, captured: bool
) -> None:
    key = tmp_path / "key"
    key.write_bytes(KEY)
    recorded = recording(capture_input=mode, capture_output=mode, capture_hash_key_file=key)
    record = serve(recorded, chat("a"), completion("b"), headers=((b"x-no-capture", value),))
    assert [key in record for key in ("gen_ai.input.messages", "gen_ai.output.messages")] == [captured, captured]
    assert record["gen_ai.request.model"] == record["gen_ai.response.model"] == "m"


def test_the_header_has_the_name_that_is_configured(recording: Recording) -> None:
    recorded = recording(capture_opt_out_header="No-Log", **ON)
    assert "gen_ai.input.messages" not in serve(recorded, chat("a"), b"{}", headers=((b"no-log", b"1"),))
    assert "gen_ai.input.messages" in serve(recorded, chat("a"), b"{}", headers=((b"x-no-capture", b"1"),))


def test_the_header_counts_wherever_it_stands_among_the_others(recording: Recording) -> None:
    many = tuple((b"x-%d" % number, b"") for number in range(1000))
    headers = (*many, (b"x-no-capture", b"1"))
    assert "gen_ai.input.messages" not in serve(recording(**ON), chat("a"), b"{}", headers=headers)


@pytest.mark.parametrize("headers", [(), ((b"x-no-capture", b"1"),)], ids=["captured", "private"])
def test_no_text_of_a_request_stays_in_shared_memory_after_its_record_is_written(
    recording: Recording, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    recorded = recording(**ON)
    serve(recorded, chat(SECRET), completion(SECRET), headers=headers)
    for path in recorded.logger.config.resolved_queue_directory.glob("*.queue"):
        assert SECRET.encode() not in path.read_bytes()


def test_a_long_text_keeps_its_first_and_its_last_words(recording: Recording) -> None:
    recorded = recording(capture_text_bytes=4096, **ON)
    long = "First. " + "and so on " * 5000 + "Last."
    record = serve(recorded, chat(long), *sse(*long.split(" ")), types=(JSON, STREAM))
    assert record["input_truncated"] is record["output_truncated"] is True
    for direction in ("input", "output"):
        parts = [part for message in record[f"gen_ai.{direction}.messages"] for part in message["parts"]]
        contents = [part["content"] for part in parts]
        assert contents[0].startswith("First.")
        assert contents[-1].endswith("Last.")
        assert any("…" in content for content in contents)
        assert all(part["truncated"] is True for part in parts)
        assert 1000 < sum(len(content) for content in contents) <= 4096


def test_an_answer_of_a_thousand_tokens_is_kept_whole_by_default(recording: Recording) -> None:
    said = [f" token{number}" for number in range(1000)]
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1763000000, "model": "llama-3"}
    choices = [[{"index": 0, "delta": {"content": token}, "finish_reason": None}] for token in said]
    usage = {"prompt_tokens": 3, "completion_tokens": 1000}
    chunks = [chunk | {"choices": choice} for choice in choices] + [chunk | {"choices": [], "usage": usage}]
    events = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in chunks]
    record = serve(recording(**ON), chat("?"), *events, b"data: [DONE]\n\n", types=(JSON, STREAM))
    assert record["gen_ai.output.messages"][0]["parts"] == [text("".join(said))]
    assert (record["gen_ai.response.model"], record["gen_ai.usage.output_tokens"]) == ("llama-3", 1000)
    assert "output_truncated" not in record


def test_full_keeps_all_that_a_record_can_hold(recording: Recording) -> None:
    recorded = recording(capture_input="full", capture_output="full", capture_text_bytes=4096)
    long = "word " * 4000
    record = serve(recorded, chat(long), completion(long))
    for direction in ("input", "output"):
        assert record[f"gen_ai.{direction}.messages"][0]["parts"] == [text(long)]
        assert f"{direction}_truncated" not in record
    record = serve(recorded, chat(long * 10), completion(long * 10))
    assert record["input_truncated"] is record["output_truncated"] is True
    assert recorded.logger.stats()["dropped"].get("oversize", 0) == 0


def test_hashes_stand_for_texts(recording: Recording, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY.hex() + "\n")
    recorded = recording(capture_input="hash", capture_output="hash", capture_hash_key_file=key)
    record = serve(recorded, chat(SECRET), *sse(SECRET[:3], SECRET[3:]), types=(JSON, STREAM))
    digest = "blake3-keyed:" + blake3(SECRET.encode(), key=KEY).hexdigest()
    expected = [{"type": "text", "length": len(SECRET), "hash": digest}]
    assert record["gen_ai.input.messages"] == [{"role": "user", "parts": expected}]
    assert record["gen_ai.output.messages"] == [{"role": "assistant", "parts": expected}]
    assert SECRET.encode() not in everything(recorded)


@pytest.mark.parametrize(("content", "reason"), [(b"short", "must hold"), (None, "can't be read")])
def test_a_key_that_cannot_be_used_stops_at_start(
    recording: Recording, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_bytes(content)
    with pytest.raises(OpenError, match=reason):
        recording(capture_input="hash", capture_hash_key_file=key)


def test_what_does_not_fit_together_is_reported() -> None:
    with pytest.raises(ConfigError, match="capture_output='hash': needs capture_hash_key_file"):
        Config(capture_output="hash")
    with pytest.raises(ConfigError, match="capture_text_bytes=1024: must be at least 4096"):
        Config(capture_input="truncated", capture_text_bytes=1024)
    with pytest.raises(ConfigError, match=r"max_record_bytes=65536: must be at least \d+ .*capture_text_bytes=65536"):
        Config(capture_input="truncated", capture_text_bytes="64KiB")
    Config(capture_text_bytes="64KiB")


def test_a_text_that_is_no_json_is_captured_as_it_is(recording: Recording) -> None:
    recorded = recording(**ON)
    record = serve(recorded, b"Ask me.", b"No.", types=(b"text/plain; charset=utf-8", b"text/plain"))
    assert record["gen_ai.input.messages"] == [{"role": "user", "parts": [text("Ask me.")]}]
    assert record["gen_ai.output.messages"] == [{"role": "assistant", "parts": [text("No.")]}]
    form = serve(recorded, b"prompt=a+b", b"", types=(b"application/x-www-form-urlencoded", b"text/plain"))
    assert form["gen_ai.input.messages"][0]["parts"] == [text("prompt=a+b")]
    assert "gen_ai.output.messages" not in form


def test_bytes_are_their_type_length_and_hash(recording: Recording) -> None:
    recorded = recording(**ON)
    sound, image = bytes(range(256)) * 40, b"\x89PNG" * 1000
    record = serve(recorded, sound, image, types=(b"audio/mpeg", b"image/png"), path="/v1/audio/transcriptions")
    expected = {"modality": "audio", "mime_type": "audio/mpeg", "length": len(sound)}
    part = {"type": "blob", **expected, "hash": f"blake3:{blake3(sound).hexdigest()}"}
    assert record["gen_ai.input.messages"] == [{"role": "user", "parts": [part]}]
    assert record["gen_ai.output.messages"][0]["parts"][0]["hash"] == f"blake3:{blake3(image).hexdigest()}"


def test_a_compressed_body_is_read_as_far_as_it_was_captured(recording: Recording) -> None:
    recorded = recording(**ON)
    packed, coding = gzip.compress(chat("Say hi.")), (b"content-encoding", b"gzip")
    record = serve(recorded, packed, gzip.compress(completion("hi")), headers=(coding,), coding=coding)
    assert record["gen_ai.input.messages"] == [{"role": "user", "parts": [text("Say hi.")]}]
    assert record["gen_ai.output.messages"][0]["parts"] == [text("hi")]
    assert record["gen_ai.request.model"] == record["gen_ai.response.model"] == "m"
    assert "body_facts" not in record
    assert serve(recorded, b"\x1f\x8b" * 9, b"{}", headers=(coding,))["body_facts"] == "compressed"


def test_a_form_gives_its_model_and_what_its_file_is(recording: Recording) -> None:
    parts = [
        b'name="model"\r\n\r\nwhisper-1',
        b'name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n' + SECRET.encode() + bytes(20_000),
        b'name="prompt"\r\n\r\n' + SECRET.encode(),
        b'name="response_format"\r\n\r\njson',
    ]
    form = b"".join(b"--b\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts) + b"--b--\r\n"
    said = json.dumps({"text": SECRET, "usage": {"type": "duration", "seconds": 12}}).encode()
    types = (b"multipart/form-data; boundary=b", JSON)
    recorded = recording()
    record = serve(recorded, form, said, types=types, path="/v1/audio/transcriptions")
    expected = {"gen_ai.request.model": "whisper-1", "form.response_format": "json", "audio_input_s": 12}
    expected |= {"file.name": "a.wav", "file.mime_type": "audio/wav", "file.size": len(SECRET) + 20_000}
    assert {key: record.get(key) for key in expected} == expected
    assert SECRET.encode() not in everything(recorded)


def test_patterns_find_what_a_stream_of_lines_divides_and_an_unknown_stream_is_withheld(recording: Recording) -> None:
    recorded = recording(capture_output="full", redact_patterns=["email"])
    pieces = ["Ask bob@exam", "ple.com."]
    lines = [
        json.dumps({"model": "m", "message": {"content": piece}, "done": False}).encode() + b"\n" for piece in pieces
    ]
    record = serve(recorded, chat("?"), *lines, types=(JSON, b"application/x-ndjson"), path="/api/chat")
    assert record["gen_ai.output.messages"][0]["parts"] == [text("Ask [redacted:email].")]
    own = [json.dumps({"piece": piece}).encode() + b"\n" for piece in pieces]
    record = serve(recorded, chat("?"), *own, types=(JSON, b"application/x-ndjson"), path="/own")
    assert record["output_withheld"] == "unknown format"
    assert b"exam" not in everything(recorded)


def _event(choice: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def _delta(piece: str) -> bytes:
    return _event({"delta": {"content": piece}})


def _call(piece: str) -> bytes:
    return _event({"delta": {"function_call": {"name": "f", "arguments": piece}}})


def _line(piece: str) -> bytes:
    return json.dumps({"message": {"content": piece}, "done": False}).encode() + b"\n"


def _thought(piece: str) -> bytes:
    return json.dumps({"response": "", "thinking": piece, "done": False}).encode() + b"\n"


SPLIT: dict[str, tuple[str, bytes, Callable[[str], bytes]]] = {
    "function call": ("/v1/chat/completions", STREAM, _call),
    "reasoning beside an empty text": ("/api/generate", b"application/x-ndjson", _thought),
    "lines that are called a document": ("/api/chat", JSON, _line),
    "lines that are called a text": ("/api/chat", b"text/plain", _line),
    "events that are called a text": ("/v1/chat/completions", b"text/plain; charset=utf-8", _delta),
    "events that are called a document": ("/v1/chat/completions", JSON, _delta),
}


@pytest.mark.parametrize("shape", SPLIT)
def test_what_a_stream_splits_is_redacted_in_every_shape(recording: Recording, shape: str) -> None:
    path, content_type, event = SPLIT[shape]
    recorded = recording(capture_output="full", redact_patterns=["email"])
    record = serve(
        recorded, chat("?"), *map(event, ("Ask bob@exam", "ple.com.")), types=(JSON, content_type), path=path
    )
    assert "Ask [redacted:email]." in json.dumps(record["gen_ai.output.messages"])
    assert b"exam" not in everything(recorded)


def test_an_image_in_a_chat_is_not_written(recording: Recording) -> None:
    pixels = bytes(range(256)) * 4
    url = "data:image/png;base64," + base64.b64encode(pixels).decode()
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    record = serve(recording(**ON), chat(content), completion("A stripe."))
    blob = {"type": "blob", "modality": "image", "mime_type": "image/png", "length": 1024}
    blob["hash"] = f"blake3:{blake3(pixels).hexdigest()}"
    assert record["gen_ai.input.messages"][0]["parts"] == [text("What is it?"), blob]


def test_what_an_operator_redacts_is_not_in_texts_either(recording: Recording) -> None:
    paths = ["gen_ai.input.messages[*].parts[*].content"]
    recorded = recording(redact_patterns=["email"], redact_fields=paths, **ON)
    record = serve(
        recorded, chat("I am ann@example.com."), *sse("Hello a", "nn@exam", "ple.com!"), types=(JSON, STREAM)
    )
    assert "ann@" not in json.dumps(record)
    assert record["gen_ai.output.messages"][0]["parts"][0]["content"].startswith("Hello ")
    assert "ann@" not in json.dumps(record)
    assert "I am" not in json.dumps(record["gen_ai.input.messages"])


def test_the_text_of_an_error_is_captured_though_nobody_samples_it(recording: Recording) -> None:
    recorded = recording(sample_ratio=0.0, **ON)
    app = replying(*answer(b'{"error": "out of memory"}', status=500, content_type=JSON))
    scope = http_scope("/v1/chat/completions", "POST", [(b"content-type", JSON)])
    recorded.serve(app, scope, body_messages(chat("why")))
    record = recorded.request()
    assert record["gen_ai.input.messages"] == [{"role": "user", "parts": [text("why")]}]
    assert record["gen_ai.output.messages"][0]["parts"][0]["content"] == '{"error": "out of memory"}'


# Keys under which texts stand, and some without a meaning; those of facts (model, id, finish_reason) are no texts.
_NAMES = "messages content text prompt input role choices delta message output tools x name"
KEYS = st.sampled_from(_NAMES.split())
DOCUMENTS = st.recursive(
    st.just(SECRET), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


def module_recorded(path: Path, **parameters: Any) -> Iterator[Recorded]:
    places: dict[str, Any] = {"directory": path / "segments", "queue_directory": path / "queues"}
    recorded = Recorded(Config(queue_bytes=1 << 20, flush_interval_s=0.01, **places, **parameters))
    yield recorded
    recorded.close()


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    yield from module_recorded(tmp_path_factory.mktemp("silent"))


@given(DOCUMENTS, st.lists(DOCUMENTS, max_size=3), st.integers(0, 400), st.sampled_from([JSON, STREAM, b"text/plain"]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_off_writes_no_text_of_any_body_whole_or_cut(
    silent: Recorded, asked: object, reported: list[object], cut: int, answered: bytes
) -> None:
    body = json.dumps(asked).encode()
    events = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in reported] or [b""]
    record = serve(silent, body[: len(body) - cut], *events, types=(JSON, answered))
    assert SECRET not in json.dumps(record)


def contents(record: dict[str, Any], direction: str) -> Iterator[str]:
    """Yield the pieces of one direction's texts; none of a body of which too little was kept to understand it."""
    for message in record.get(f"gen_ai.{direction}.messages", []):
        for part in message["parts"]:
            if part["type"] == "text":
                yield from part["content"].split("…")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    limits = {"capture_text_bytes": 256, "capture_head_bytes": 0, "capture_tail_bytes": 0}
    yield from module_recorded(tmp_path_factory.mktemp("small"), **limits, **ON)


@given(st.lists(st.text(max_size=400).filter(lambda said: "…" not in said), min_size=1, max_size=4), st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_of_any_chat_was_said(small: Recorded, said: list[str], is_ascii: bool) -> None:
    messages = [{"role": "user", "content": content} for content in said]
    request = json.dumps({"messages": messages}, ensure_ascii=is_ascii).encode("utf-8", "replace")
    said = [content.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for content in said]
    record = serve(small, request, *sse(*said), types=(JSON, STREAM))
    for content in contents(record, "input"):
        assert any(content in whole for whole in said)
    for content in contents(record, "output"):
        assert content in "".join(said)
    assert record.get("input_truncated", False) is (len(request) > 256)
