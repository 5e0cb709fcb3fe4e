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
        "Text of requests with a body, as gen_ai.input.messages. off: no byte of it; truncated: of a body longer than"
        " capture_text_bytes, half of these from its beginning and half from its end; full: as much as "
        "max_record_bytes leaves room for; hash: length and keyed hash of each text instead of the text, and neither "
        "for a text that is cut. Images, audio and other media are always replaced by type, length and hash.",
    )
    capture_output: TextMode = parameter(
        "off",
        "Text of the answers to such requests, as gen_ai.output.messages, a stream's pieces joined; modes as for "
        "capture_input.",
    )
    capture_body: Literal["off", "raw"] = parameter(
        "off",
        "raw: the body of each request, byte for byte as http.request.body, so that it can be sent again: at most "
        "capture_text_bytes of it, from its beginning, then with http.request.body.truncated. Redaction applies to it "
        "as to all texts, and clients can forbid it as they can all texts.",
        advanced=True,
    )
    capture_tools: Literal["names", "full"] = parameter(
        "names",
        "Tools of a request, as gen_ai.tool.definitions. names: type and name of each of the first 16; full: the list "
        "as the client sent it, with descriptions and parameters, if the bytes of the body that are copied hold all of "
        "it, else as names. Redaction applies to it as to all texts, and where the client forbids the capture of texts "
        "there are only names.",
        advanced=True,
    )
    capture_text_bytes: Bytes = parameter(
        16 * KIB,
        "Bytes of a body that are copied for its text in the mode truncated, per direction: half of them from its "
        "beginning, half from its end; for a stream only the new part of each event counts. The middle is not read, "
        "and the record says so (input_truncated, output_truncated).",
        unit="bytes",
        limits=(256, 8 * MIB),
    )
    capture_opt_out_header: Annotated[str | None, BeforeValidator(none_if_empty), matching(HEADER_NAME)] = parameter(
        "X-No-Capture",
        "Request header with which a client forbids that any text of its request and answer is captured, hashes "
        "included; of an exception only the type is recorded then. Any value counts except 0, false, no and off. "
        "Empty = clients cannot forbid it.",
        allowed="a header's name of at most 64 characters, or empty",
    )
    capture_hash_key_file: OptionalPath = parameter(
        None,
        "File with the key of the hashes: 32 bytes, or 64 hexadecimal digits. Without it, likely texts could be found"
        " by trying, so the mode hash requires one. Servers with the same key also decide alike about the traces of "
        "callers that are not trusted (see trusted_callers). Empty = hashes of media have no key.",
        allowed="the path of a readable file, or empty",
    )
