"""What is replaced in records before anything is stored."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from inference_logging.record.config.fields import (
    FewAndDifferent,
    Parameters,
    each_name_once,
    matching,
    parameter,
    split_expressions,
    split_list,
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
