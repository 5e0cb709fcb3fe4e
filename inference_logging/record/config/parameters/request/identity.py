"""Whose request it is: headers and members of the body that its record gets."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from inference_logging.record.config.fields import FewAndDifferent, Parameters, matching, parameter, split_list

MOST_HEADERS = 16
MOST_BODY_FIELDS = 4
MOST_TENANTS = 64
_TENANT = re.compile(r"[^\x00-\x1f\x7f,]{1,120}")
_FIELDS = r"tenant\.id|enduser\.id|gen_ai\.conversation\.id|api_key\.hash|user_agent\.original|server\.address"
_HEADER = re.compile(rf"[0-9A-Za-z_-]{{1,64}}(?::hash)?(?:=(?:{_FIELDS}))?")
_BODY_FIELD = re.compile(r"(?:user|metadata|prompt_cache_key|safety_identifier)(?::hash)?")

Headers = Annotated[
    tuple[Annotated[str, matching(_HEADER)], ...],
    BeforeValidator(split_list),
    AfterValidator(FewAndDifferent(MOST_HEADERS)),
]
BodyFields = Annotated[
    tuple[Annotated[str, matching(_BODY_FIELD)], ...],
    BeforeValidator(split_list),
    AfterValidator(FewAndDifferent(MOST_BODY_FIELDS)),
]


Tenants = Annotated[
    tuple[Annotated[str, matching(_TENANT)], ...],
    BeforeValidator(split_list),
    AfterValidator(FewAndDifferent(MOST_TENANTS)),
]


class IdentityParameters(Parameters):
    """Whose request it is: headers and members of the body that its record gets."""

    record_headers: Headers = parameter(
        (),
        "Request headers to record: x-team as http.request.header.x-team, x-tenant=tenant.id under that name, "
        "authorization:hash=api_key.hash as a keyed hash, which the listener computes with capture_hash_key_file "
        "(without the scheme Bearer). Headers whose names suggest credentials need :hash.",
        allowed=f"at most {MOST_HEADERS} of name, name:hash, name=field or name:hash=field; a field is tenant.id, "
        "enduser.id, gen_ai.conversation.id, api_key.hash, user_agent.original or server.address",
    )
    record_body_fields: BodyFields = parameter(
        (),
        "Members of JSON bodies to record as openai.request.<name>, or with :hash as a keyed hash. They can name "
        "people, so none is recorded by default, nor if the client forbids the capture of texts. They are read from "
        "what capture_head_bytes and capture_tail_bytes keep.",
        allowed="user, metadata, prompt_cache_key, safety_identifier, each once, with or without :hash",
        advanced=True,
    )
    metrics_tenants: Tenants = parameter(
        (),
        "Tenants (tenant.id from a header or the application, not its hash) that "
        "inference_logging_tenant_requests_total and inference_logging_tenant_tokens_total count by name; all others "
        "count as other. A name keeps its place as long as the queue directory exists. Empty = no such metrics.",
        allowed=f"at most {MOST_TENANTS} names of 1 to 120 bytes, without commas and control characters",
        advanced=True,
    )
