"""Read a file as `vllm bench serve` does; print arrival (s), lengths and the prompt.

Run: python read_vllm.py timed_trace|sharegpt FILE MODEL (in the environment of `make vllm`).
"""

from __future__ import annotations

import json
import sys

from transformers import AutoTokenizer
from vllm.benchmarks.datasets.datasets import add_dataset_parser, get_samples
from vllm.utils.argparse_utils import FlexibleArgumentParser

kind, path, model = sys.argv[1:]
parser = FlexibleArgumentParser()
add_dataset_parser(parser)
arguments = parser.parse_args(["--dataset-name", kind, "--dataset-path", path, "--disable-shuffle", "--no-oversample"])
arguments.backend, arguments.request_id_prefix = "openai", ""
for request in get_samples(arguments, AutoTokenizer.from_pretrained(model)):
    print("row", json.dumps([request.timestamp, request.prompt_len, request.expected_output_len, request.prompt]))
