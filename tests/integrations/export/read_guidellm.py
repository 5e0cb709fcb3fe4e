"""Read a trace as GuideLLM does with `kind: mooncake`; print arrival (s), lengths, duration (s) and the prompt.

Run: python read_guidellm.py FILE MODEL (in the environment of `make export-readers`).
"""

from __future__ import annotations

import json
import sys

from guidellm.data.deserializers import DatasetDeserializerFactory
from guidellm.schemas.data.deserializers.file import FileDataArgs
from guidellm.schemas.data.deserializers.trace_mooncake import MooncakeTraceFormatArgs
from transformers import AutoTokenizer

path, model = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(model)
config = MooncakeTraceFormatArgs(source=FileDataArgs(kind="json_file", path=path))
for row in DatasetDeserializerFactory.deserialize(config, lambda: tokenizer, 1):
    for turn in json.loads(row["conversation_turns"])["turns"]:
        columns = turn["columns"]
        names = ("relative_timestamp", "prompt_tokens_count", "output_tokens_count", "request_duration", "text")
        print(json.dumps([columns[f"{name}_column"][0] for name in names]))
