"""Prompts for traces that have lengths and prefix ids only: where two ids are equal, so is the text of the block.

A block is made of its id alone, so every run and every machine makes the same text, and a prefix cache finds what it
found with the recorded prompts. One word stands for one token: the words are short, frequent English ones, which the
vocabularies of common models hold with the blank before them. How many tokens a model counts is in the comparison.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

_TEXT: Final = (
    "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but "
    "not what all were we when your can said there use an each which she do how their if will up other about out many "
    "then them these so some her would make like him into time has look two more write go see number no way could "
    "people my than first water been call who oil its now find long down day did get come made may part"
)
WORDS: Final = tuple(_TEXT.split())
_KEPT_BLOCKS: Final = 4096
"""Blocks that are kept: a block of 512 words has about 2 KiB."""


def prompt_text(hash_ids: Sequence[int], tokens: int, block_tokens: int) -> str:
    """Return a prompt of ``tokens`` words, the first ``block_tokens`` of which are made of the first id, and so on.

    ``hash_ids`` has one id for each block, the last one counted.
    """
    full = tokens // block_tokens
    blocks = [_block(number, block_tokens) for number in hash_ids[:full]]
    if rest := tokens - full * block_tokens:
        blocks.append(_block(hash_ids[full], rest))
    return " ".join(blocks)


@lru_cache(maxsize=_KEPT_BLOCKS)
def _block(number: int, words: int) -> str:
    return " ".join(random.Random(number).choices(WORDS, k=words))
