"""What viewers such as Phoenix read of a span: the attributes of OpenInference, made of a record's GenAI fields.

Only what the record has: without captured texts there are no messages. Source: the OpenInference specification's
semantic conventions and its "traces" page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from inference_logging.read.segments import Record

KIND: Final = "openinference.span.kind"
KINDS: Final = {
    "chat": "LLM",
    "text_completion": "LLM",
    "generate_content": "LLM",
    "embeddings": "EMBEDDING",
    "rerank": "RERANKER",
    "score": "RERANKER",
}
"""By ``gen_ai.operation.name``; whatever else a server does is a CHAIN."""

_MODEL: Final = {"LLM": "llm.model_name", "EMBEDDING": "embedding.model_name", "RERANKER": "reranker.model_name"}
_SAME: Final = {
    "gen_ai.provider.name": "llm.provider",
    "gen_ai.usage.input_tokens": "llm.token_count.prompt",
    "gen_ai.usage.output_tokens": "llm.token_count.completion",
    "gen_ai.usage.cache_read.input_tokens": "llm.token_count.prompt_details.cache_read",
    "gen_ai.usage.cache_creation.input_tokens": "llm.token_count.prompt_details.cache_write",
    "gen_ai.usage.reasoning.output_tokens": "llm.token_count.completion_details.reasoning",
    "gen_ai.conversation.id": "session.id",
    "enduser.id": "user.id",
}
"""Fields whose value is an attribute of another name."""
_PARAMETERS: Final = "gen_ai.request."
_TEXTS: Final = frozenset({"text", "reasoning", "refusal", "json", "events"})
"""Types of parts whose content is a text."""


def openinference(record: Record) -> dict[str, Any]:
    """Return OpenInference's attributes of a request."""
    kind = KINDS.get(str(record.get("gen_ai.operation.name")), "CHAIN")
    made: dict[str, Any] = {KIND: kind}
    made.update((name, record[field]) for field, name in _SAME.items() if isinstance(record.get(field), str | int))
    model = record.get("gen_ai.response.model") or record.get("gen_ai.request.model")
    if kind in _MODEL and isinstance(model, str):
        made[_MODEL[kind]] = model
    tokens = [record.get(f"gen_ai.usage.{side}_tokens") for side in ("input", "output")]
    counted = [count for count in tokens if isinstance(count, int)]
    if counted:
        made["llm.token_count.total"] = sum(counted)
    given = {name.removeprefix(_PARAMETERS): value for name, value in record.items() if name.startswith(_PARAMETERS)}
    given.pop("model", None)
    if kind == "LLM" and given:
        made["llm.invocation_parameters"] = orjson.dumps(given).decode()
    made.update(_texts(record, kind))
    return made


def _texts(record: Record, kind: str) -> Iterator[tuple[str, Any]]:
    sides = {"input": _messages(record, "gen_ai.input.messages"), "output": _messages(record, "gen_ai.output.messages")}
    for side, messages in sides.items():
        if messages:
            yield from _value(side, messages)
    if kind == "EMBEDDING":
        texts = [content for message in sides["input"] for content in map(_content, _parts(message)) if content]
        yield from ((f"embedding.embeddings.{at}.embedding.text", text) for at, text in enumerate(texts))
    if kind != "LLM":
        return
    system = record.get("gen_ai.system_instructions")
    if isinstance(system, list) and system:
        sides["input"] = [{"role": "system", "parts": system}, *sides["input"]]
    yield from _tools(record)
    for side, messages in sides.items():
        for at, message in enumerate(messages):
            prefix = f"llm.{side}_messages.{at}.message"
            yield from ((f"{prefix}.{name}", value) for name, value in _message(message))


def _tools(record: Record) -> Iterator[tuple[str, str]]:
    """Return the tools that are on record whole: a name alone is no schema."""
    whole = [tool for tool in _messages(record, "gen_ai.tool.definitions") if not set(tool) <= {"type", "name"}]
    yield from ((f"llm.tools.{at}.tool.json_schema", orjson.dumps(tool).decode()) for at, tool in enumerate(whole))


def _value(side: str, messages: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Return what lists of spans show: the text, if that is all there is, or else the messages as JSON."""
    parts = [part for message in messages for part in _parts(message)]
    is_one_text = len(parts) == 1 and parts[0].get("type") in _TEXTS and isinstance(parts[0].get("content"), str)
    yield f"{side}.value", parts[0]["content"] if is_one_text else orjson.dumps(messages).decode()
    yield f"{side}.mime_type", "text/plain" if is_one_text else "application/json"


def _message(message: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(role := message.get("role"), str):
        yield "role", role
    parts = _parts(message)
    calls = [part for part in parts if part.get("type") == "tool_call"]
    for at, call in enumerate(calls):
        prefix = f"tool_calls.{at}.tool_call"
        named = {"id": "id", "name": "function.name", "arguments": "function.arguments"}
        yield from ((f"{prefix}.{name}", _as_text(call[member])) for member, name in named.items() if member in call)
    shown = [part for part in parts if part.get("type") != "tool_call"]
    for part in shown:
        if part.get("type") == "tool_call_response" and isinstance(part.get("id"), str):
            yield "tool_call_id", part["id"]
    if len(shown) == 1 and (content := _content(shown[0])):
        yield "content", content
    elif len(shown) > 1:
        for at, part in enumerate(shown):
            prefix = f"contents.{at}.message_content"
            yield from ((f"{prefix}.{name}", value) for name, value in _part(part))


def _part(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    content, uri = _content(part), part.get("uri")
    modality = part.get("modality")
    yield "type", "text" if content or not isinstance(modality, str) else modality
    if content:
        yield "text", content
    if isinstance(uri, str) and modality == "image":
        yield "image.image.url", uri


def _content(part: Mapping[str, Any]) -> str:
    if part.get("type") == "tool_call_response":
        return _as_text(part.get("response", ""))
    content = part.get("content")
    return content if part.get("type") in _TEXTS and isinstance(content, str) else ""


def _messages(record: Record, field: str) -> list[Mapping[str, Any]]:
    found = record.get(field)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = message.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
