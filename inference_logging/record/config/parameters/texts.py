"""The texts of requests and responses: what is kept of them, and what is replaced before anything is stored."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from inference_logging.record.config.fields import (
    KIB,
    MIB,
    Bytes,
    FewAndDifferent,
    OptionalPath,
    Parameters,
    each_name_once,
    matching,
    none_if_empty,
    parameter,
    split_expressions,
    split_list,
)
from inference_logging.record.config.parameters.request import HEADER_NAME

TextMode = Literal["off", "truncated", "full", "hash"]


class CaptureParameters(Parameters):
    """What is kept of the texts of requests and responses."""

    capture_input: TextMode = parameter(
        "off",
        "Text of requests with a body, as gen_ai.input.messages. off: none; truncated: if the body is longer than "
        "capture_text_bytes, half of these from its beginning and half from its end; full: as much as max_record_bytes "
        "allows; hash: length and keyed hash of each text instead, and neither for a text that is cut. Images, audio "
        "and other media are always replaced by type, length and hash.",
    )
    capture_output: TextMode = parameter(
        "off",
        "Text of the answers to such requests, as gen_ai.output.messages, a stream's pieces joined; modes as for "
        "capture_input.",
    )
    capture_body: Literal["off", "raw"] = parameter(
        "off",
        "raw: the body of each request, byte for byte as http.request.body, so that it can be sent again: at most its "
        "first capture_text_bytes, then with http.request.body.truncated. Redaction and the client's opt-out apply as "
        "to all texts.",
        advanced=True,
    )
    capture_tools: Literal["names", "full"] = parameter(
        "names",
        "Tools of a request, as gen_ai.tool.definitions. names: type and name of the first 16; full: the list as sent, "
        "with descriptions and parameters, if the copied bytes of the body hold all of it, else as names. Redaction "
        "applies as to all texts; if the client forbids the capture of texts, there are only names.",
        advanced=True,
    )
    capture_text_bytes: Bytes = parameter(
        16 * KIB,
        "Bytes of a body copied for its text in the mode truncated, per direction: half from its beginning, half from "
        "its end; for a stream only the new part of each event counts. The middle is not read, and the record says so "
        "(input_truncated, output_truncated).",
        unit="bytes",
        limits=(256, 8 * MIB),
    )
    capture_opt_out_header: Annotated[str | None, BeforeValidator(none_if_empty), matching(HEADER_NAME)] = parameter(
        "X-No-Capture",
        "Request header with which a client forbids the capture of any text of its request and answer, hashes "
        "included; exceptions are then recorded by type only. Any value counts except 0, false, no and off. Empty = "
        "clients cannot forbid it.",
        allowed="a header's name of at most 64 characters, or empty",
    )
    capture_hash_key_file: OptionalPath = parameter(
        None,
        "File with the key of the hashes: 32 bytes, or 64 hexadecimal digits. The mode hash requires one, since likely "
        "texts could otherwise be found by trying. Servers with the same key also decide alike about the traces of "
        "untrusted callers (see trusted_callers). Empty = hashes of media have no key.",
        allowed="the path of a readable file, or empty",
    )


MOST_RULES = 256
_NAME = r"[A-Za-z0-9._-]{1,64}"
_PATTERN = re.compile("email|phone|card|key|bearer")
_PATH = re.compile(r"[^\x00-\x1f\x7f]{1,512}")
_EXPRESSION = re.compile(r"[^\x00]{1,4096}")
_REPLACEMENT = re.compile(r"[^\x00-\x1f\x7f]{0,200}")

FieldPaths = Annotated[
    tuple[Annotated[str, matching(_PATH)], ...],
    BeforeValidator(split_list),
    AfterValidator(FewAndDifferent(MOST_RULES)),
]
Patterns = Annotated[
    tuple[Annotated[str, matching(_PATTERN)], ...], BeforeValidator(split_list), AfterValidator(FewAndDifferent(5))
]
Expressions = Annotated[
    tuple[tuple[Annotated[str, matching(re.compile(_NAME))], Annotated[str, matching(_EXPRESSION)]], ...],
    BeforeValidator(split_expressions, json_schema_input_type=dict[str, str]),
    AfterValidator(each_name_once),
    PlainSerializer(dict, return_type=dict[str, str]),
]


class RedactionParameters(Parameters):
    """What is replaced in records before anything is stored."""

    redact_fields: FieldPaths = parameter(
        (),
        "Fields whose values the listener replaces before any sink sees them: password (anywhere), user.email, "
        "$.client_request_id (from the start of the line), messages[*].content, ['a.b'][0]. Names ignore case, also in "
        "JSON within a text; in texts that are not JSON, the text after name= or name: is replaced.",
        allowed=f"at most {MOST_RULES} paths of names, [*], [0], .* and ['name'], each once",
    )
    redact_patterns: Patterns = parameter(
        (),
        "Texts that are replaced everywhere, keys and numbers included: email; phone (+country, or with separators); "
        "card (known networks, check digit); key (API keys, private keys, JSON Web Tokens, passwords in URLs, and "
        "texts in fields with such names: token, *_token, *secret*, *pass*, session*); bearer (HTTP credentials, and "
        "headers with such names, also as pairs of name and value).",
        allowed="email, phone, card, key, bearer, each once",
    )
    redact_custom: Expressions = parameter(
        (),
        "Names and regular expressions whose matches are replaced (Rust's regex syntax: no look-around or "
        "backreferences, so that time is linear). In a variable: one name=expression per line. An expression that "
        "matches the empty text, or compiles to more than 1 MiB, is refused at start.",
        allowed=f"at most {MOST_RULES} names of 1 to 64 letters, digits, '.', '_' or '-', and regular expressions",
    )
    redact_replacement: Annotated[str, matching(_REPLACEMENT)] = parameter(
        "[redacted:{name}]",
        "Replacement of a match; {name} becomes the name of the pattern or expression, or field.",
        allowed="at most 200 characters without control characters",
        advanced=True,
    )
