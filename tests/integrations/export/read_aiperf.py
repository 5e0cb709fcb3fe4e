"""Read a trace as `aiperf profile --custom-dataset-type mooncake_trace` does; print arrival (ms), lengths, payload.

Run: python read_aiperf.py FILE MODEL (in the environment of `make export-readers`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from aiperf.common import random_generator
from aiperf.common.tokenizer import Tokenizer
from aiperf.dataset.generator.prompt import PromptGenerator
from aiperf.dataset.loader.mooncake_trace import MooncakeTraceDatasetLoader


def main(path: str, model: str) -> None:
    """Read and print."""
    random_generator.init(1)
    tokenizer = Tokenizer.from_pretrained(model)
    generator = PromptGenerator(prompts=None, prefix_prompts=None, tokenizer=tokenizer)
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        assert MooncakeTraceDatasetLoader.can_load(json.loads(line)), line
    loader = MooncakeTraceDatasetLoader(filename=path, prompt_generator=generator, default_block_size=512)
    sessions = loader.load_dataset()
    lengths = {session: trace.input_length for session, (trace,) in sessions.items()}
    for conversation in loader.convert_to_conversations(sessions):
        (turn,) = conversation.turns
        print(json.dumps([turn.timestamp, lengths[conversation.session_id], turn.max_tokens, turn.raw_payload]))


# It starts processes that import this file.
if __name__ == "__main__":
    main(*sys.argv[1:])
