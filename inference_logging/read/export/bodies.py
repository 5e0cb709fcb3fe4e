"""The body of a request as it can be sent again: as it came, or rebuilt from its messages and parameters.

A rebuilt body has what the record has. Tools, response formats and parameters that no field names are missing in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from inference_logging.read.export.requests import LeftOut


class Body(NamedTuple):
    """A body, and where it comes from: ``raw`` (`http.request.body`) or ``messages`` (rebuilt)."""

    content: dict[str, Any]
    source: str


_PARAMETERS: Final = {
    "gen_ai.request.stream": "stream",
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.top_k": "top_k",
    "gen_ai.request.seed": "seed",
    "gen_ai.request.choice.count": "n",
    "gen_ai.request.stop_sequences": "stop",
    "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty",
}


class _CannotRebuildError(Exception):
    """Something of the body is not on record; the message is the statement's word for it."""


def body_of(record: Mapping[str, Any]) -> Body | LeftOut:
    """Return the body of a request record, or why there is none."""
    raw = record.get("http.request.body")
    if isinstance(raw, str):
        if record.get("http.request.body.truncated"):
            return LeftOut("body_truncated")
        try:
            content = orjson.loads(raw)
        except orjson.JSONDecodeError:
            content = None
        return Body(content, "raw") if isinstance(content, dict) else LeftOut("body_not_json")
    if not isinstance(record.get("gen_ai.input.messages"), list):
        return LeftOut("no_body")
    try:
        return Body(_rebuilt(record), "messages")
    except _CannotRebuildError as error:
        return LeftOut(str(error))


def _rebuilt(record: Mapping[str, Any]) -> dict[str, Any]:
    path = str(record.get("url.path", ""))
    build = next((build for end, build in _APIS.items() if path.endswith(end)), None)
    if build is None:
        raise _CannotRebuildError("unknown_api")
    if record.get("input_truncated"):
        raise _CannotRebuildError("body_truncated")
    body = {"model": record["gen_ai.request.model"]} if "gen_ai.request.model" in record else {}
    body |= build(record)
    body |= {short: record[name] for name, short in _PARAMETERS.items() if name in record}
    if (most := record.get("gen_ai.request.max_tokens")) is not None:
        body["max_output_tokens" if path.endswith("/responses") else "max_tokens"] = most
    return body


def _chat(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"messages": [*_system(record), *(_message(message) for message in _messages(record))]}


def _completion(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"prompt": _one_or_all([_text(message) for message in _messages(record)])}


def _embedding(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"input": _one_or_all([_text(message) for message in _messages(record)])}


def _anthropic(record: Mapping[str, Any]) -> dict[str, Any]:
    system = {"system": system[0]["content"]} if (system := _system(record)) else {}
    texts = ({"role": message.get("role"), "content": _text(message)} for message in _messages(record))
    return {**system, "messages": list(texts)}


def _responses(record: Mapping[str, Any]) -> dict[str, Any]:
    system = {"instructions": system[0]["content"]} if (system := _system(record)) else {}
    texts = ({"role": message.get("role"), "content": _text(message)} for message in _messages(record))
    return {**system, "input": list(texts)}


_APIS: Final[dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "/chat/completions": _chat,
    "/completions": _completion,
    "/embeddings": _embedding,
    "/messages": _anthropic,
    "/responses": _responses,
}
"""By the end of the path; the first that fits."""


def _messages(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = record["gen_ai.input.messages"]
    if not all(isinstance(message, dict) and isinstance(message.get("parts"), list) for message in messages):
        raise _CannotRebuildError("body_not_json")
    return list(messages)


def _system(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = record.get("gen_ai.system_instructions")
    return [{"role": "system", "content": _text({"parts": parts})}] if isinstance(parts, list) else []


def _text(message: Mapping[str, Any]) -> str:
    """Return a message that is nothing but text."""
    parts = message["parts"]
    if any(part.get("type") != "text" for part in parts):
        raise _CannotRebuildError(_lacking(parts))
    return "".join(_content(part, "content") for part in parts)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of a chat, with its images by address and its calls of tools."""
    built: dict[str, Any] = {"role": message.get("role")}
    content: list[dict[str, Any]] = []
    for part in message["parts"]:
        kind = part.get("type")
        if kind == "text":
            content.append({"type": "text", "text": _content(part, "content")})
        elif kind == "uri" and part.get("modality") == "image":
            content.append({"type": "image_url", "image_url": {"url": _content(part, "uri")}})
        elif kind == "tool_call":
            function = {"name": part.get("name"), "arguments": _content(part, "arguments")}
            built.setdefault("tool_calls", []).append({"id": part.get("id"), "type": "function", "function": function})
        elif kind == "tool_call_response":
            built["tool_call_id"] = part.get("id")
            content.append({"type": "text", "text": _content(part, "response")})
        else:
            raise _CannotRebuildError(_lacking([part]))
    is_one_text = len(content) == 1 and content[0]["type"] == "text"
    built["content"] = content[0]["text"] if is_one_text else content or None
    return built


def _content(part: Mapping[str, Any], member: str) -> str:
    text = part.get(member)
    if not isinstance(text, str) or part.get("truncated"):
        raise _CannotRebuildError(_lacking([part]))
    return text


def _lacking(parts: list[Any]) -> str:
    if any(part.get("truncated") for part in parts):
        return "body_truncated"
    return "body_hashed" if any(part.get("type") == "text" and "hash" in part for part in parts) else "media"


def _one_or_all(texts: list[str]) -> str | list[str]:
    return texts[0] if len(texts) == 1 else texts
