"""The columns of records as tables have them, in `query` and in Parquet files: name and DuckDB's type."""

from __future__ import annotations

from typing import Final

from inference_logging._native import request_fields

HEAD: Final = {
    "timestamp": "TIMESTAMP", "severity_text": "VARCHAR", "event_name": "VARCHAR", "boot_id": "VARCHAR",
    "pid": "BIGINT", "seq": "UBIGINT", "trace_id": "VARCHAR", "span_id": "VARCHAR", "parent_span_id": "VARCHAR",
    "trace_flags": "VARCHAR",
}  # fmt: skip
"""The columns at the beginning of every record."""

LOGS: Final = {"logger": "VARCHAR", "message": "VARCHAR", "request_id": "VARCHAR", "attributes": "JSON"}
"""The columns that application records add."""

RESOURCE: Final = {
    "service.name": "VARCHAR", "service.version": "VARCHAR", "service.instance.id": "VARCHAR", "host.name": "VARCHAR",
    "k8s.pod.name": "VARCHAR", "k8s.namespace.name": "VARCHAR", "k8s.node.name": "VARCHAR", "container.id": "VARCHAR",
    "deployment.environment.name": "VARCHAR",
}  # fmt: skip
"""The columns that a segment's header gives to each of its records."""

_SERVER: Final = {name: column for name, column, _ in request_fields() if column}
_LISTENER: Final = {
    "gen_ai.request.model": "VARCHAR", "gen_ai.request.stream": "BOOLEAN", "gen_ai.request.max_tokens": "BIGINT",
    "gen_ai.request.temperature": "DOUBLE", "gen_ai.request.top_p": "DOUBLE", "gen_ai.request.top_k": "DOUBLE",
    "gen_ai.request.seed": "BIGINT", "gen_ai.request.choice.count": "BIGINT",
    "gen_ai.request.stop_sequences": "VARCHAR[]", "gen_ai.request.frequency_penalty": "DOUBLE",
    "gen_ai.request.presence_penalty": "DOUBLE", "gen_ai.provider.name": "VARCHAR", "gen_ai.output.type": "VARCHAR",
    "gen_ai.tool.definitions": "JSON", "gen_ai.conversation.id": "VARCHAR", "gen_ai.response.id": "VARCHAR",
    "gen_ai.response.model": "VARCHAR", "gen_ai.response.finish_reasons": "VARCHAR[]",
    "gen_ai.usage.reasoning.output_tokens": "BIGINT", "gen_ai.usage.cache_creation.input_tokens": "BIGINT",
    "gen_ai.response.time_per_output_token": "DOUBLE", "gen_ai.response.output_tokens_per_second": "DOUBLE",
    "enduser.id": "VARCHAR", "tenant.id": "VARCHAR", "api_key.hash": "VARCHAR", "user_agent.original": "VARCHAR",
    "server.address": "VARCHAR", "openai.request.user": "VARCHAR", "openai.request.metadata": "VARCHAR",
    "openai.request.prompt_cache_key": "VARCHAR", "openai.request.safety_identifier": "VARCHAR", "attributes": "JSON",
    "gen_ai.usage.audio.input_tokens": "BIGINT", "gen_ai.usage.image.input_tokens": "BIGINT",
    "gen_ai.usage.audio.output_tokens": "BIGINT", "audio_input_s": "DOUBLE", "http.request.body": "VARCHAR",
    "http.request.body.truncated": "BOOLEAN", "form.language": "VARCHAR", "form.to_language": "VARCHAR",
    "form.response_format": "VARCHAR", "form.size": "VARCHAR", "form.quality": "VARCHAR", "form.purpose": "VARCHAR",
    "output_withheld": "VARCHAR", "body_facts": "VARCHAR",
    "file.name": "VARCHAR", "file.mime_type": "VARCHAR", "file.size": "BIGINT",
}  # fmt: skip

REQUESTS: Final = {**_SERVER, **{name: column for name, column in _LISTENER.items() if name not in _SERVER}}
"""The columns that request records add: from the server or the listener, which reads bodies and derives values."""
