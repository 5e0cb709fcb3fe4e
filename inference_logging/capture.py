"""How much of a body is copied for its text, and the key of the hashes that may stand for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from inference_logging._native import TextCapture
from inference_logging.errors import OpenError

if TYPE_CHECKING:
    from inference_logging.config import Config

REQUEST_RECORD_OVERHEAD_BYTES = 5120
"""What a request record takes besides captures and timeline: ids, method, route, counters, tags, the engine's facts."""

_KEY_BYTES = 32


def text_capture(config: Config) -> TextCapture:
    """Return what a middleware does with the texts of requests and answers.

    Raises ``OpenError`` for a key that can't be read.
    """
    input_bytes, output_bytes = captured_bytes(config)
    return TextCapture(
        input_mode=config.capture_input,
        input_bytes=input_bytes,
        output_mode=config.capture_output,
        output_bytes=output_bytes,
        hash_key=hash_key(config.capture_hash_key_file),
    )


def captured_bytes(config: Config) -> tuple[int, int]:
    """Return the most bytes of a request's body and of an answer's that are copied.

    What is ``full`` or to be hashed shares what ``max_record_bytes`` leaves.
    """
    facts = config.capture_head_bytes + config.capture_tail_bytes
    modes = (config.capture_input, config.capture_output)
    fixed = {"off": facts, "truncated": max(facts, config.capture_text_bytes)}
    taken = [fixed[mode] for mode in modes if mode in fixed]
    room = config.max_record_bytes - REQUEST_RECORD_OVERHEAD_BYTES - 4 * config.chunk_timeline_limit - sum(taken)
    share = room // max(1, len(modes) - len(taken))
    first, second = (fixed.get(mode, share) for mode in modes)
    return first, second


def problems(config: Config) -> list[str]:
    """Return what is wrong with the parameters of captures taken together, each as a sentence."""
    found = []
    modes = {"capture_input": config.capture_input, "capture_output": config.capture_output}
    least = 2 * max(config.capture_head_bytes, config.capture_tail_bytes)
    if "truncated" in modes.values() and config.capture_text_bytes < least:
        found.append(
            f"capture_text_bytes={config.capture_text_bytes}: must be at least {least}, twice the larger of "
            f"capture_head_bytes={config.capture_head_bytes} and capture_tail_bytes={config.capture_tail_bytes}, which "
            "are copied in any case; raise it or lower those"
        )
    found += [
        f"{name}={mode!r}: needs capture_hash_key_file"
        for name, mode in modes.items()
        if mode == "hash" and config.capture_hash_key_file is None
    ]
    sizes = captured_bytes(config)
    request = REQUEST_RECORD_OVERHEAD_BYTES + 4 * config.chunk_timeline_limit
    request += sum(max(size, config.capture_head_bytes + config.capture_tail_bytes) for size in sizes)
    if config.max_record_bytes < request:
        found.append(
            f"max_record_bytes={config.max_record_bytes}: must be at least {request} to hold a request record with "
            f"chunk_timeline_limit={config.chunk_timeline_limit}, capture_head_bytes={config.capture_head_bytes} and "
            f"capture_tail_bytes={config.capture_tail_bytes}{_texts(config)}; raise it or lower those"
        )
    return found


def _texts(config: Config) -> str:
    if "truncated" not in (config.capture_input, config.capture_output):
        return ""
    return f" and capture_text_bytes={config.capture_text_bytes}"


def hash_key(path: Path | None) -> bytes | None:
    """Return the key in the file, 32 bytes; raises ``OpenError`` naming the parameter and what is wrong."""
    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise OpenError(f"capture_hash_key_file={str(path)!r}: can't be read: {error.strerror}") from error
    if len(content) == _KEY_BYTES:
        return content
    if re.fullmatch(rb"\s*[0-9a-fA-F]{64}\s*", content):
        return bytes.fromhex(content.decode())
    raise OpenError(f"capture_hash_key_file={str(path)!r}: must hold 32 bytes or 64 hexadecimal digits")
