"""Streams of Anthropic, Ollama, Gemini, TGI, llama.cpp and Triton, written anew from their public references."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from tests.truth.events import JSON, NDJSON, Event, Framing, Optional, Stream, failure
from tests.truth.openai_apis import MODEL, usage


class Messages:
    """Anthropic's `/v1/messages`: each event has a name, and the same as its `type`."""

    path: Final = "/v1/messages"
    id: Final = "msg_0b1"

    def _event(self, kind: Any, name: str, members: dict[str, Any], facts: dict[str, Any] | None = None) -> Event:
        return Event(kind, {"type": name, **members}, name, facts or {})

    def start(self, read: int = 45, cache_read: int = 1200, cache_written: int = 0) -> Event:
        counts = {"input_tokens": read, "cache_creation_input_tokens": cache_written}
        counts |= {"cache_read_input_tokens": cache_read, "output_tokens": 1}
        message: dict[str, Any] = {"id": self.id, "type": "message", "role": "assistant", "content": [], "model": MODEL}
        message |= {"stop_reason": None, "stop_sequence": None, "usage": counts}
        facts = {"gen_ai.response.id": self.id, "gen_ai.response.model": MODEL}
        # The count of the output is that of a beginning, not of the answer.
        facts |= usage(read + cache_read + cache_written, 0, cache_read)
        return self._event("frame", "message_start", {"message": message}, facts)

    def block(self, index: int = 0, **block: Any) -> Event:
        content = block or {"type": "text", "text": ""}
        return self._event("frame", "content_block_start", {"index": index, "content_block": content})

    def _delta(self, kind: Any, members: dict[str, Any]) -> Event:
        return self._event(kind, "content_block_delta", {"index": 0, "delta": members})

    def text(self, text: str) -> Event:
        return self._delta("content" if text else "frame", {"type": "text_delta", "text": text})

    def reasoning(self, text: str) -> Event:
        return self._delta("reasoning", {"type": "thinking_delta", "thinking": text})

    def signature(self) -> Event:
        return self._delta("frame", {"type": "signature_delta", "signature": "EqQBCgIYAhIM"})

    def arguments(self, text: str) -> Event:
        return self._delta("tool" if text else "frame", {"type": "input_json_delta", "partial_json": text})

    def block_stop(self, index: int = 0) -> Event:
        return self._event("frame", "content_block_stop", {"index": index})

    def finish(self, written: int = 15, reason: str = "end_turn") -> Event:
        members = {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": written}}
        facts = {"gen_ai.response.finish_reasons": [reason], "gen_ai.usage.output_tokens": written}
        return self._event("frame", "message_delta", members, facts)

    def stop(self) -> Event:
        return self._event("end", "message_stop", {})

    def error(self, kind: str = "overloaded_error") -> Event:
        body = {"error": {"type": kind, "message": "Overloaded"}}
        return self._event("error", "error", body, failure(kind))

    def stream(self, shape: str, *events: Event) -> Stream:
        return Stream("messages", shape, self.path, events)


class Ollama:
    """Ollama's `/api/chat` and `/api/generate`: one JSON object a line."""

    def __init__(self, chat: bool = True) -> None:
        self._chat = chat
        self.path = "/api/chat" if chat else "/api/generate"

    def _event(self, kind: Any, members: dict[str, Any], **more: Any) -> Event:
        facts: dict[str, Any] = {"gen_ai.response.model": MODEL}
        if "done_reason" in more:
            facts["gen_ai.response.finish_reasons"] = [more["done_reason"]]
            facts |= usage(more["prompt_eval_count"], more["eval_count"])
        if self._chat:
            members = {"message": {"role": "assistant", **members}}
        data = {"model": MODEL, "created_at": "2026-01-01T00:00:00.5Z", **members, "done": False, **more}
        return Event(kind, data, facts=facts)

    @property
    def _key(self) -> str:
        return "content" if self._chat else "response"

    def text(self, text: str) -> Event:
        return self._event("content", {self._key: text})

    def reasoning(self, text: str) -> Event:
        return self._event("reasoning", {self._key: "", "thinking": text})

    def tool(self, name: str, **arguments: Any) -> Event:
        call = {"function": {"name": name, "arguments": arguments}}
        return self._event("tool", {"content": "", "tool_calls": [call]})

    def done(self, read: int = 26, written: int = 9, reason: str = "stop") -> Event:
        times = {"total_duration": 4883583458, "load_duration": 1334875, "eval_duration": 4535599000}
        counts = {"prompt_eval_count": read, "eval_count": written}
        return self._event("end", {self._key: ""}, done=True, done_reason=reason, **times, **counts)

    def error(self) -> Event:
        return Event("error", {"error": "an error was encountered while running the model"}, facts=failure())

    def stream(self, shape: str, *events: Event) -> Stream:
        return Stream("ollama" if self._chat else "ollama generate", shape, self.path, events, NDJSON)


class Gemini:
    """`models/…:streamGenerateContent`, as events or, without `alt=sse`, as one JSON array."""

    path: Final = f"/v1beta/models/{MODEL}:streamGenerateContent"

    def _event(self, kind: Any, parts: list[dict[str, Any]], reason: str | None = None) -> Event:
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if reason:
            candidate["finishReason"] = reason
        counts = {"promptTokenCount": 4, "candidatesTokenCount": 2, "totalTokenCount": 6}
        facts = {"gen_ai.response.model": MODEL, **usage(4, 2)}
        if reason:
            facts["gen_ai.response.finish_reasons"] = [reason]
        # Fields of this API that a record need not have.
        known = {name: Optional(value) for name, value in facts.items()}
        return Event(kind, {"candidates": [candidate], "usageMetadata": counts, "modelVersion": MODEL}, facts=known)

    def text(self, text: str, reason: str | None = None) -> Event:
        return self._event("content" if text else "frame", [{"text": text}], reason)

    def reasoning(self, text: str) -> Event:
        return self._event("reasoning", [{"text": text, "thought": True}])

    def code(self, text: str) -> Event:
        return self._event("content", [{"executableCode": {"language": "PYTHON", "code": text}}])

    def tool(self, name: str, **arguments: Any) -> Event:
        return self._event("tool", [{"functionCall": {"name": name, "args": arguments}}])

    def error(self, status: str = "UNAVAILABLE", code: int = 503) -> Event:
        body = {"code": code, "message": "The model is overloaded.", "status": status}
        return Event("error", {"error": body}, facts=failure(status, str(code)))

    def stream(self, shape: str, *events: Event) -> Stream:
        return Stream("gemini", shape, self.path, events, framing=Framing(line_end=b"\r\n"))

    def array(self, shape: str, *events: Event) -> Stream:
        """Return the same events as the elements of an array, cut where an element begins."""
        texts = [json.dumps(event.data).encode() for event in events]
        wires = [(b"[" if at == 0 else b",\r\n") + text for at, text in enumerate(texts)]
        wires[-1] += b"]"
        elements = tuple(replace(event, wire=wire) for event, wire in zip(events, wires, strict=True))
        return Stream("gemini array", shape, self.path, elements, JSON)


class Tgi:
    """Text Generation Inference's `/generate_stream`, which writes no space behind `data:`."""

    path: Final = "/generate_stream"

    def __init__(self) -> None:
        self._index = 0

    def text(self, text: str, last: bool = False) -> Event:
        self._index += 1
        token = {"id": 100 + self._index, "text": text, "logprob": -0.5, "special": False}
        details = {"finish_reason": "length", "generated_tokens": self._index, "seed": None, "input_length": 4}
        data = {"index": self._index, "token": token, "generated_text": "all of it" if last else None}
        facts = {"gen_ai.response.finish_reasons": ["length"], **usage(4, self._index)} if last else {}
        known = {name: Optional(value) for name, value in facts.items()}
        return Event("content", {**data, "details": details if last else None}, facts=known)

    def error(self, kind: str = "generation") -> Event:
        data = {"error": "Request failed during generation: it broke", "error_type": kind}
        return Event("error", data, facts=failure(kind))

    def stream(self, shape: str, *events: Event) -> Stream:
        return Stream("tgi", shape, self.path, events, framing=Framing(space=False, ascii_only=False))


class LlamaCpp:
    """llama.cpp's own `/completion`."""

    path: Final = "/completion"

    def text(self, text: str) -> Event:
        data = {"index": 0, "content": text, "tokens": [15], "stop": False, "id_slot": -1}
        # The counts so far, which a record need not have.
        known = {name: Optional(value) for name, value in usage(6, 1).items()}
        return Event("content", {**data, "tokens_predicted": 1, "tokens_evaluated": 6}, facts=known)

    def done(self, read: int = 6, written: int = 4) -> Event:
        data = {"index": 0, "content": "", "tokens": [], "id_slot": 0, "stop": True, "model": MODEL}
        data |= {"tokens_predicted": written, "tokens_evaluated": read, "has_new_line": False, "truncated": False}
        data |= {"stop_type": "eos", "stopping_word": "", "tokens_cached": 9, "timings": {"prompt_n": read}}
        facts = {"gen_ai.response.finish_reasons": Optional(["eos"]), "gen_ai.response.model": MODEL}
        return Event("end", data, facts={**facts, **usage(read, written)})

    def error(self) -> Event:
        body = {"code": 500, "message": "it broke", "type": "server_error"}
        return Event("error", {"error": body}, facts=failure("server_error", "500"))

    def stream(self, shape: str, *events: Event) -> Stream:
        return Stream("llama.cpp", shape, self.path, events)


class Triton:
    """Triton's `/v2/models/…/generate_stream`."""

    path: Final = f"/v2/models/{MODEL}/generate_stream"

    def text(self, text: str) -> Event:
        data = {"model_name": MODEL, "model_version": "1", "text_output": text}
        return Event("content" if text else "frame", data, facts={"gen_ai.response.model": Optional(MODEL)})

    def error(self) -> Event:
        return Event("error", {"error": "failed to run the model: it broke"}, facts=failure())

    def stream(self, shape: str, *events: Event) -> Stream:
        return Stream("triton", shape, self.path, events)


class Unknown:
    """Events that are no API's: each one that is not empty is content."""

    path: Final = "/ticker"

    def text(self, text: str) -> Event:
        return Event("content", text.encode())

    def object(self, **members: Any) -> Event:
        return Event("content", members)

    def error(self, data: Any = b"it broke") -> Event:
        return Event("error", data, "error", failure())

    def stream(self, shape: str, *events: Event) -> Stream:
        return Stream("unknown", shape, self.path, events)
