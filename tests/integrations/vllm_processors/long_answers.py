"""A logits processor of vLLM: long answers take as long as those of a real model."""

from __future__ import annotations

import time

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor, RequestLogitsProcessor

LONG_TOKENS = 2000
"""An answer that may have as many tokens is long."""
TOKEN_S = 0.01


class SlowLongAnswers(AdapterLogitsProcessor):  # type: ignore[misc]
    """Make each token of a long answer take ``TOKEN_S`` seconds, and leave all tokens as they are.

    The tests' model is so small that it writes 8,000 tokens before a busy machine sees that a client has left.
    """

    def is_argmax_invariant(self) -> bool:
        """Say no, or greedy answers would be written without it."""
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """Return what waits for each token, where the answer may be long."""
        return slowly if (params.max_tokens or 0) >= LONG_TOKENS else None


def slowly(_output_token_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Return the logits as they are, later."""
    time.sleep(TOKEN_S)
    return logits
