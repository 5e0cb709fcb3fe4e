"""The prompt of a request as bytes, so that equal beginnings of prompts are equal bytes; the answer's text; and ids.

Both texts are taken from what the servers have captured: messages as text, messages as hashes, or the body itself.

Ids stand for a prompt's prefix blocks: two prompts that begin alike have the same first ids, and nothing else is said.
Load generators make a text of each block by its id, so the same prefixes are found in the prefix cache of the server
under test. Servers record no token blocks of the engine, so blocks are cut from the captured text: a block of N tokens
is taken as N times ``bytes_per_token`` bytes. Ids are keyed hashes (BLAKE2b, RFC 7693) of all the text up to the
block's end, so likely texts can't be found by trying without the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

_MAX_HASHED_BYTES: Final = 64 << 20
"""More than the text of any body; a larger length in a record is damaged."""


class Prompt(NamedTuple):
    """The known beginning of a prompt; ``is_whole``: all of it is known."""

    content: bytes
    is_whole: bool


def prompt_of(record: Mapping[str, Any]) -> Prompt | None:
    """Return the prompt of a request record; None if nothing of it is on record."""
    messages = record.get("gen_ai.input.messages")
    if isinstance(messages, list):
        instructions = record.get("gen_ai.system_instructions")
        system = [{"role": "system", "parts": instructions}] if isinstance(instructions, list) else []
        return _joined([*system, *messages], is_cut=bool(record.get("input_truncated")))
    return _of_body(record)


def output_of(record: Mapping[str, Any]) -> Prompt | None:
    """Return the answer of a request record, None if nothing of it is on record."""
    messages = record.get("gen_ai.output.messages")
    return _joined(messages, is_cut=bool(record.get("output_truncated"))) if isinstance(messages, list) else None


def _joined(messages: list[Any], *, is_cut: bool) -> Prompt | None:
    found: list[bytes] = []
    for message in messages:
        if not isinstance(message, dict):
            return None
        found.append(f"\0{message.get('role')}".encode())
        for part in _parts(message):
            content = _content(part)
            if part.get("truncated") or content is None:
                return Prompt(b"".join(found), is_whole=False)
            found.append(f"\0{part.get('type')}\0".encode() + content)
    return Prompt(b"".join(found), is_whole=not is_cut)


def _parts(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    parts = message.get("parts")
    yield from (part for part in (parts if isinstance(parts, list) else ()) if isinstance(part, dict))


def _content(part: Mapping[str, Any]) -> bytes | None:
    """Return the text of a part; of a hashed one as many bytes as it had, which repeat its hash."""
    for member in ("content", "response", "arguments", "uri", "file_id"):
        if isinstance(part.get(member), str):
            return f"{part.get('name', '')}\0{part[member]}".encode("utf-8", "replace")
    digest, length = part.get("hash"), part.get("length")
    if isinstance(digest, str) and digest and isinstance(length, int) and 0 <= length <= _MAX_HASHED_BYTES:
        return (digest.encode() * (length // len(digest) + 1))[: max(length, len(digest))]
    return None


def _of_body(record: Mapping[str, Any]) -> Prompt | None:
    text = record.get("http.request.body")
    if not isinstance(text, str):
        return None
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict):
        return None
    # As JSON without the closing bracket: a longer conversation begins with the shorter one's bytes.
    asked = [body[name] for name in ("system", "instructions", "messages", "prompt", "input") if name in body]
    return Prompt(orjson.dumps(asked).rstrip(b"]"), is_whole=True) if asked else None


KEY_BYTES: Final = 32
_ID_BITS: Final = 53
"""Ids are exact in readers that keep every number as a double."""


class Prefixes:
    """Makes the ids; ``block_tokens`` is the number of tokens that one id stands for."""

    def __init__(self, key: bytes, block_tokens: int, bytes_per_token: float) -> None:
        """Take a key of 32 bytes."""
        self._key = key
        self.block_tokens = block_tokens
        self._block_bytes = max(1, round(block_tokens * bytes_per_token))

    def ids(self, prompt: Prompt | None, tokens: int, request_id: str) -> list[int]:
        """Return one id for each block of a prompt of ``tokens`` tokens; of one that is not known, unique ids.

        The last block is rarely full and is no prefix of another prompt's: its id is that of the whole prompt. So are
        the ids of blocks beyond the text, where a text has fewer bytes than were expected.
        """
        needed = -(-tokens // self.block_tokens)
        content = prompt.content if prompt is not None else b""
        whole = hashlib.blake2b(content, key=self._key, digest_size=16)
        if prompt is None or not prompt.is_whole:
            whole.update(request_id.encode())
        so_far = hashlib.blake2b(key=self._key, digest_size=8)
        ids: list[int] = []
        for begin in range(0, len(content) - self._block_bytes + 1, self._block_bytes):
            if len(ids) >= needed - 1:
                break
            so_far.update(content[begin : begin + self._block_bytes])
            ids.append(_number(so_far.digest()))
        ids += (self._rest(whole.digest(), tokens, at) for at in range(len(ids), needed))
        return ids

    def hash(self, text: Prompt | None) -> str | None:
        """Return the keyed hash of a whole text as 32 hexadecimal digits; None where it is not known as a whole."""
        if text is None or not text.is_whole:
            return None
        return hashlib.blake2b(text.content, key=self._key, digest_size=16).hexdigest()

    def _rest(self, whole: bytes, tokens: int, at: int) -> int:
        return _number(hashlib.blake2b(b"%s %d %d" % (whole, tokens, at), key=self._key, digest_size=8).digest())


def _number(digest: bytes) -> int:
    return int.from_bytes(digest, "little") >> (64 - _ID_BITS)
