"""Ids of a prompt's prefix blocks: two prompts that begin alike have the same first ids, and nothing else is said.

Load generators make a text of each block by its id, so the same prefixes are found in the prefix cache of the server
under test. Servers record no token blocks of the engine, so blocks are cut from the captured text: a block of N tokens
is taken as N times ``bytes_per_token`` bytes. Ids are keyed hashes (BLAKE2b, RFC 7693) of all the text up to the
block's end, so likely texts can't be found by trying without the key.
"""

from __future__ import annotations

import hashlib
from typing import Final

from inference_logging.read.export.prompts import Prompt

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
