"""Streams of OpenAI's APIs, written anew from their public reference."""

from __future__ import annotations

from typing import Any, Final

from tests.truth.events import JSON, Event, Stream, failure

DONE: Final = Event("end", b"[DONE]")
MODEL: Final = "model-7b"


def usage(read: int, written: int, cached: int = 0) -> dict[str, Any]:
    """Return the facts of a usage."""
    facts = {
        "gen_ai.usage.input_tokens": read,
        "gen_ai.usage.output_tokens": written,
        "gen_ai.usage.cache_read.input_tokens": cached,
    }
    return {key: value for key, value in facts.items() if value}


class Chat:
    """`/v1/chat/completions`."""

    path: Final = "/v1/chat/completions"
    id: Final = "chatcmpl-0a1"

    def _event(self, kind: Any, delta: dict[str, Any], reason: str | None = None, **more: Any) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        facts: dict[str, Any] = {"gen_ai.response.id": self.id, "gen_ai.response.model": MODEL}
        if reason:
            facts["gen_ai.response.finish_reasons"] = [reason]
        return Event(kind, {**self._head(), "choices": [choice], **more}, facts=facts)

    def _head(self) -> dict[str, Any]:
        return {"id": self.id, "object": "chat.completion.chunk", "created": 1700000000, "model": MODEL}

    def role(self) -> Event:
        return self._event("frame", {"role": "assistant", "content": ""})

    def text(self, text: str, **more: Any) -> Event:
        return self._event("content" if text else "frame", {"content": text}, **more)

    def role_and_text(self, text: str) -> Event:
        return self._event("content", {"role": "assistant", "content": text})

    def last_text(self, text: str, reason: str = "stop") -> Event:
        return self._event("content", {"content": text}, reason)

    def nulls(self) -> Event:
        members = {"content": None, "reasoning_content": None, "refusal": None, "tool_calls": None}
        return self._event("frame", members, error=None, usage=None)

    def text_and_nulls(self, text: str) -> Event:
        return self._event("content", {"reasoning_content": None, "content": text, "tool_calls": []}, error=None)

    def reasoning_and_nulls(self, text: str) -> Event:
        return self._event("reasoning", {"content": None, "reasoning_content": text, "tool_calls": []})

    def text_with_usage(self, text: str, read: int = 11, written: int = 1) -> Event:
        """Return an event of a server that counts all the time."""
        counts = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        event = self.text(text, usage=counts)
        return Event("content", event.data, facts={**event.facts, **usage(read, written)})

    def text_with_probabilities(self, text: str) -> Event:
        token = {"token": "error", "logprob": -0.5, "bytes": [101], "top_logprobs": []}
        event = self.text(text)
        [choice] = event.data["choices"]
        choices = [{**choice, "logprobs": {"content": [token], "refusal": None}}]
        return Event("content", {**event.data, "choices": choices}, facts=event.facts)

    def two_choices(self, text: str) -> Event:
        """Return an event whose second choice alone has text."""
        event = self.text(text)
        [choice] = event.data["choices"]
        choices = [{**choice, "delta": {}}, {**choice, "index": 1}]
        return Event("content", {**event.data, "choices": choices}, facts=event.facts)

    def filters(self) -> Event:
        """Return the first event of a server that looks at prompts."""
        verdict = {"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}}
        head = {"id": "", "object": "", "created": 0, "model": ""}
        return Event("frame", {"choices": [], **head, "prompt_filter_results": [verdict]})

    def refusal(self, text: str) -> Event:
        return self._event("content", {"refusal": text})

    def function(self, name: str) -> Event:
        """Return a call as before there were tools."""
        return self._event("tool", {"function_call": {"name": name, "arguments": ""}})

    def reasoning(self, text: str, key: str = "reasoning_content") -> Event:
        return self._event("reasoning", {key: text})

    def tool(self, name: str) -> Event:
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
        return self._event("tool", {"tool_calls": [call]})

    def arguments(self, text: str) -> Event:
        return self._event("tool", {"tool_calls": [{"index": 0, "function": {"arguments": text}}]})

    def finish(self, reason: str = "stop") -> Event:
        return self._event("frame", {}, reason)

    def usage(self, read: int = 11, written: int = 7, cached: int = 8) -> Event:
        counts = {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        return Event("usage", {**self._head(), "choices": [], "usage": counts}, facts=usage(read, written, cached))

    def error(self, kind: str | None = "server_error", code: Any = None) -> Event:
        body = {"message": "it broke", "type": kind, "param": None, "code": code}
        return Event("error", {"error": body}, facts=failure(kind or "stream_error", _text(code)))

    def error_behind_other_keys(self) -> Event:
        body = {"message": "it broke", "type": "upstream_error", "code": 502}
        return Event("error", {**self._head(), "choices": [], "error": body}, facts=failure("upstream_error", "502"))

    def error_of_a_choice(self) -> Event:
        """Return an event of a router whose provider failed."""
        event = self._event("error", {"content": ""})
        [choice] = event.data["choices"]
        choices = [{**choice, "error": {"code": 502, "message": "it broke"}}]
        return Event("error", {**event.data, "choices": choices}, facts={**event.facts, **failure(code="502")})

    def filter_that_failed(self, text: str) -> Event:
        """Return an event whose text was not looked at: the answer goes on."""
        event = self.text(text)
        [choice] = event.data["choices"]
        verdict = {"error": {"code": "content_filter_error", "message": "The contents are not filtered"}}
        choices = [{**choice, "content_filter_result": verdict, "error": None}]
        return Event("content", {**event.data, "choices": choices}, facts=event.facts)

    def image(self) -> Event:
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        return self._event("content", {"content": "", "images": [image]})

    def list_of_thoughts(self, text: str) -> Event:
        thoughts = {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
        return self._event("reasoning", {"content": [thoughts]})

    def finish_by_error(self) -> Event:
        event = self._event("error", {"content": ""}, "error")
        return Event("error", event.data, facts={**event.facts, **failure()})

    def stream(self, shape: str, *events: Event) -> Stream:
        return Stream("chat", shape, self.path, events)


class Completions:
    """`/v1/completions`."""

    path: Final = "/v1/completions"
    id: Final = "cmpl-0a2"

    def text(self, text: str, reason: str | None = None) -> Event:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
        facts: dict[str, Any] = {"gen_ai.response.id": self.id, "gen_ai.response.model": MODEL}
        if reason:
            facts["gen_ai.response.finish_reasons"] = [reason]
        return Event("content" if text else "frame", {**self._head(), "choices": [choice]}, facts=facts)

    def _head(self) -> dict[str, Any]:
        return {"id": self.id, "object": "text_completion", "created": 1700000000, "model": MODEL}

    def usage(self, read: int = 5, written: int = 3) -> Event:
        counts = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        return Event("usage", {**self._head(), "choices": [], "usage": counts}, facts=usage(read, written))

    def error(self) -> Event:
        body = {"object": "error", "message": "it broke", "type": "InternalServerError", "param": None, "code": 500}
        return Event("error", {"error": body}, facts=failure("InternalServerError", "500"))

    def stream(self, shape: str, *events: Event) -> Stream:
        return Stream("completions", shape, self.path, events)


class Responses:
    """`/v1/responses`: each event has a name, and the same as its `type`."""

    path: Final = "/v1/responses"
    id: Final = "resp_0a3"

    def __init__(self) -> None:
        self._number = -1

    def _event(self, kind: Any, name: str, members: dict[str, Any], facts: dict[str, Any] | None = None) -> Event:
        self._number += 1
        return Event(kind, {"type": name, "sequence_number": self._number, **members}, name, facts or {})

    def _response(self, status: str, **more: Any) -> dict[str, Any]:
        response = {"id": self.id, "object": "response", "created_at": 1700000000, "status": status, "error": None}
        response |= {"incomplete_details": None, "instructions": None, "model": MODEL, "output": [], "usage": None}
        return {"response": {**response, **more}}

    def created(self) -> Event:
        facts = {"gen_ai.response.id": self.id, "gen_ai.response.model": MODEL}
        return self._event("frame", "response.created", self._response("in_progress"), facts)

    def in_progress(self) -> Event:
        return self._event("frame", "response.in_progress", self._response("in_progress"))

    def item_added(self, item: dict[str, Any]) -> Event:
        return self._event("frame", "response.output_item.added", {"output_index": 0, "item": item})

    def part_added(self) -> Event:
        part = {"type": "output_text", "text": "", "annotations": []}
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        return self._event("frame", "response.content_part.added", {**place, "part": part})

    def _delta(self, kind: Any, name: str, text: str) -> Event:
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        return self._event(kind if text else "frame", name, {**place, "delta": text})

    def text(self, text: str) -> Event:
        return self._delta("content", "response.output_text.delta", text)

    def refusal(self, text: str) -> Event:
        return self._delta("content", "response.refusal.delta", text)

    def reasoning(self, text: str) -> Event:
        return self._delta("reasoning", "response.reasoning_text.delta", text)

    def summary(self, text: str) -> Event:
        return self._delta("reasoning", "response.reasoning_summary_text.delta", text)

    def arguments(self, text: str) -> Event:
        return self._delta("tool", "response.function_call_arguments.delta", text)

    def text_done(self, text: str) -> Event:
        """Repeat the whole text: nothing that the client has not seen."""
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        return self._event("frame", "response.output_text.done", {**place, "text": text})

    def item_done(self, text: str) -> Event:
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
        return self._event("frame", "response.output_item.done", {"output_index": 0, "item": item})

    def completed(self, read: int = 36, written: int = 8, cached: int = 20) -> Event:
        members = self._response("completed", usage=self._usage(read, written, cached))
        return self._event("end", "response.completed", members, usage(read, written, cached))

    def incomplete(self, reason: str = "max_output_tokens") -> Event:
        members = self._response("incomplete", incomplete_details={"reason": reason}, usage=self._usage(36, 8, 0))
        facts = {"gen_ai.response.finish_reasons": [reason], **usage(36, 8)}
        return self._event("end", "response.incomplete", members, facts)

    def failed(self, code: str = "server_error") -> Event:
        members = self._response("failed", error={"code": code, "message": "it broke"})
        return self._event("error", "response.failed", members, failure(code=code))

    def error(self, code: str | None = "rate_limit_exceeded") -> Event:
        return self._event("error", "error", {"code": code, "message": "it broke", "param": None}, failure(code=code))

    def _usage(self, read: int, written: int, cached: int) -> dict[str, Any]:
        counts: dict[str, Any] = {"input_tokens": read, "input_tokens_details": {"cached_tokens": cached}}
        counts |= {"output_tokens": written, "output_tokens_details": {"reasoning_tokens": 0}}
        return {**counts, "total_tokens": read + written}

    def stream(self, shape: str, *events: Event) -> Stream:
        return Stream("responses", shape, self.path, events)

    def document(self, status: str) -> Stream:
        """Return an answer that is no stream."""
        more: dict[str, Any] = {"usage": self._usage(36, 8, 0)}
        facts = {"gen_ai.response.id": self.id, "gen_ai.response.model": MODEL, **usage(36, 8)}
        if status == "failed":
            more = {"error": {"code": "server_error", "message": "it broke"}}
            facts = {"gen_ai.response.id": self.id, "gen_ai.response.model": MODEL, **failure(code="server_error")}
        if status == "incomplete":
            more["incomplete_details"] = {"reason": "content_filter"}
            facts["gen_ai.response.finish_reasons"] = ["content_filter"]
        body = self._response(status, **more)["response"]
        event = Event("error" if status == "failed" else "frame", body, facts=facts)
        return Stream("responses", f"document, {status}", self.path, (event,), JSON)


class Transcription:
    """`/v1/audio/transcriptions` with `stream`."""

    path: Final = "/v1/audio/transcriptions"

    def text(self, text: str) -> Event:
        return Event("content", {"type": "transcript.text.delta", "delta": text})

    def done(self, text: str, read: int = 14, written: int = 31) -> Event:
        details = {"text_tokens": 0, "audio_tokens": read}
        counts = {"type": "tokens", "input_tokens": read, "input_token_details": details, "output_tokens": written}
        body = {"type": "transcript.text.done", "text": text, "usage": {**counts, "total_tokens": read + written}}
        return Event("end", body, facts=usage(read, written))

    def stream(self, shape: str, *events: Event) -> Stream:
        return Stream("audio", shape, self.path, events)


def embeddings() -> Stream:
    """Return an answer of `/v1/embeddings`, which is never a stream."""
    vector = {"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}
    body = {"object": "list", "data": [vector], "model": MODEL, "usage": {"prompt_tokens": 8, "total_tokens": 8}}
    facts = {"gen_ai.response.model": MODEL, "gen_ai.usage.input_tokens": 8}
    return Stream("embeddings", "document", "/v1/embeddings", (Event("frame", body, facts=facts),), JSON)


def _text(code: Any) -> str | None:
    return None if code is None else str(code)
