"""What each field means and in which unit it is, for the page.

The request's own fields have their meaning in the core, beside their names; docs/request.md is printed from the same.
Here are the fields that the listener derives, that stand at the beginning of each record, and that a segment's header
gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from inference_logging._native import request_fields
from inference_logging.read.segments.columns import HEAD, LOGS, REQUESTS, RESOURCE

_HEAD: Final = {
    "timestamp": "When the record was made: of a request, when it had ended. UTC.",
    "severity_text": "Severity: DEBUG, INFO, WARN, ERROR, FATAL.",
    "event_name": "Kind of the record: `request`, `log`, or an event's own name.",
    "boot_id": "Id of one run of a process: 16 hex digits.",
    "pid": "Id of the process, in its own namespace.",
    "seq": "Number of the record in its process, from 0.",
    "trace_id": "Id of the trace: 32 hex digits.",
    "span_id": "Id of the request's span in the trace: 16 hex digits.",
    "parent_span_id": "Id of the caller's span.",
    "trace_flags": "Flags of W3C Trace Context; 01: sampled.",
    "logger": "Name of the logger.",
    "message": "The message, as it was formatted.",
}
_LISTENER: Final = {
    "gen_ai.request.model": "Model that was asked for.",
    "gen_ai.request.stream": "Whether a stream was asked for.",
    "gen_ai.request.max_tokens": "Most tokens that may be generated.",
    "gen_ai.request.temperature": "Temperature of sampling.",
    "gen_ai.request.top_p": "Share of probability that sampling keeps.",
    "gen_ai.request.top_k": "Tokens that sampling keeps.",
    "gen_ai.request.seed": "Seed of sampling.",
    "gen_ai.request.choice.count": "Answers that were asked for.",
    "gen_ai.request.stop_sequences": "Texts that end the output.",
    "gen_ai.request.frequency_penalty": "Penalty for frequent tokens.",
    "gen_ai.request.presence_penalty": "Penalty for tokens that occur.",
    "gen_ai.provider.name": "Who serves the model, such as `vllm`.",
    "gen_ai.output.type": "Kind of output that was asked for: `text`, `json`, …",
    "gen_ai.tool.definitions": "Tools that the model may call.",
    "gen_ai.conversation.id": "Id of the conversation.",
    "gen_ai.response.id": "The answer's id.",
    "gen_ai.response.model": "Model that answered.",
    "gen_ai.response.finish_reasons": "Why each choice ended.",
    "gen_ai.usage.reasoning.output_tokens": "Tokens of the output that were reasoning.",
    "gen_ai.usage.cache_creation.input_tokens": "Tokens of the input that a cache has taken.",
    "gen_ai.usage.audio.input_tokens": "Tokens of the input that were audio.",
    "gen_ai.usage.image.input_tokens": "Tokens of the input that were images.",
    "gen_ai.usage.audio.output_tokens": "Tokens of the output that were audio.",
    "form.language": "Language of a form, such as a transcription's.",
    "form.to_language": "Language into which a form's file is translated.",
    "form.response_format": "Format that a form asks for.",
    "form.size": "Size of the image that a form asks for.",
    "form.quality": "Quality that a form asks for.",
    "form.purpose": "What a file is uploaded for.",
    "file.name": "Name of the file in a form, as the client says.",
    "file.mime_type": "Its type, as the client says.",
    "file.size": "Its bytes, where its beginning and its end were captured.",
    "output_withheld": "Why the text of the answer is not stored, such as `unknown format`.",
    "body_facts": "Why facts of a body may be missing: `compressed`.",
    "audio_input_s": "Seconds of audio that were read, as the answer says.",
    "gen_ai.response.time_per_output_token": "Mean time of an output token after the first one.",
    "gen_ai.response.output_tokens_per_second": "Output tokens per second, from the first chunk to the last one.",
    "enduser.id": "Who asked, as a header or the application says.",
    "tenant.id": "Whose request it was, as a header or the application says.",
    "api_key.hash": "Keyed hash of the API key.",
    "user_agent.original": "The client's program, as it says.",
    "server.address": "Name under which the server was called.",
    "openai.request.user": "Member `user` of the body.",
    "openai.request.metadata": "Member `metadata` of the body.",
    "openai.request.prompt_cache_key": "Member `prompt_cache_key` of the body.",
    "openai.request.safety_identifier": "Member `safety_identifier` of the body.",
    "http.request.body": "The body, where it is captured.",
    "http.request.body.truncated": "Whether the body was longer than what is captured.",
}
_RESOURCE: Final = {
    "service.name": "Name of the service.",
    "service.version": "Its version.",
    "service.instance.id": "Id of its instance.",
    "host.name": "Name of the machine.",
    "k8s.pod.name": "Name of the pod.",
    "k8s.namespace.name": "Its namespace.",
    "k8s.node.name": "Name of the node.",
    "container.id": "Id of the container.",
    "deployment.environment.name": "Environment, such as `production`.",
}
_OTHERS: Final = {
    "chunk": "Number of the chunk, from 1.",
    "bytes": "Bytes of the chunk.",
    "since_start_s": "Seconds since the request began.",
    "engine.index": "Number of the engine.",
    "engine.interval_s": "Length of the interval that the figures are of.",
    "engine.running": "Requests that were running at its end.",
    "engine.waiting": "Requests that were waiting at its end.",
    "engine.kv_cache_usage": "Share of the KV cache that was in use at its end, 0 to 1.",
    "engine.prefix_cache_queries": "Tokens that were looked for in the prefix cache.",
    "engine.prefix_cache_hits": "Tokens that were found in the prefix cache.",
    "engine.prompt_tokens": "Tokens of prompts that were read.",
    "engine.prompt_tokens_per_s": "The same per second.",
    "engine.generation_tokens": "Tokens that were generated.",
    "engine.generation_tokens_per_s": "The same per second.",
    "engine.finished": "Requests that finished.",
    "websocket.subprotocol": "Subprotocol of the WebSocket connection that was agreed on.",
    "websocket.messages_received": "Messages that the client sent.",
    "websocket.bytes_received": "Their bytes.",
    "websocket.messages_sent": "Messages that the server sent.",
    "websocket.bytes_sent": "Their bytes.",
    "websocket.close_code": "Code with which the connection was closed, such as 1000.",
    "websocket.closed_by": "Which side closed it: `client` or `server`.",
    "severity": "Severity as OpenTelemetry's number: 9 INFO, 13 WARN, 17 ERROR.",
}

_SERVER: Final = {name: meaning for name, column, meaning in request_fields() if column}
MEANINGS: Final[Mapping[str, str]] = {**_OTHERS, **_LISTENER, **_RESOURCE, **_SERVER, **_HEAD}

_TYPES: Final = {**RESOURCE, **REQUESTS, **LOGS, **HEAD}
_TYPE_NAMES: Final = {"BIGINT": "integer", "UBIGINT": "integer", "DOUBLE": "number", "BOOLEAN": "boolean"}


def unit(name: str) -> str:
    """Return the unit of a field as UCUM writes it; empty for what has none."""
    if name.endswith(("tokens_per_second", "tokens_per_s")):
        return "{token}/s"
    if name.endswith(("_tokens", ".max_tokens")):
        return "{token}"
    if name.endswith("_us"):
        return "us"
    if name.endswith(("_s", ".time_per_output_token")) or name.startswith("gen_ai.response.time_to_first_"):
        return "s"
    if name.endswith("body.size") or name == "bytes":
        return "By"
    return "{chunk}" if name == "chunks" else ""


def described(name: str) -> dict[str, str]:
    """Return type, unit and meaning of a field; a field of the application's own has no meaning here."""
    kind = _TYPES.get(name, "")
    name_of_type = "list" if kind.endswith("[]") else _TYPE_NAMES.get(kind, kind.lower().replace("varchar", "text"))
    return {"name": name, "type": name_of_type, "unit": unit(name), "meaning": MEANINGS.get(name, "")}


def fields_with_meaning(indexed: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return all known fields, those of the index first, each with type, unit and meaning."""
    found: dict[str, dict[str, Any]] = {}
    for field in indexed:
        known = described(str(field["name"]))
        found[known["name"]] = {**known, "type": known["type"] or field.get("type", ""), "indexed": True}
    for name in (*_TYPES, *MEANINGS):
        found.setdefault(name, {**described(name), "indexed": False})
    return list(found.values())
