"""Capture of the texts of requests and responses: none, unless configured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from inference_logging.record.config.fields import (
    KIB,
    MIB,
    Bytes,
    OptionalPath,
    Parameters,
    matching,
    none_if_empty,
    parameter,
)
from inference_logging.record.config.parameters.request.trace import HEADER_NAME

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
