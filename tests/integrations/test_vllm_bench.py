"""A real vLLM under vLLM's own load tool: what it counts is what is on record."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.vllm_server import MODEL, VENV, VllmServer, environment_of
from tests.support import wait_until

pytestmark = pytest.mark.vllm

REQUESTS, TOKENS = 24, 8
PREFIX = "load-"


def test_the_counts_of_vllm_bench_serve_are_those_of_the_records(vllm: VllmServer, tmp_path: Path) -> None:
    command = [
        *(str(VENV / "bin" / "vllm"), "bench", "serve", "--backend", "openai", "--base-url", vllm.url),
        *("--model", "tiny", "--tokenizer", str(MODEL), "--dataset-name", "random", "--random-input-len", "16"),
        *("--random-output-len", str(TOKENS), "--num-prompts", str(REQUESTS), "--max-concurrency", "4", "--ignore-eos"),
        *("--request-id-prefix", PREFIX, "--save-result", "--result-filename", str(tmp_path / "result.json")),
    ]
    done = subprocess.run(command, env=environment_of(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))

    def found() -> list[dict[str, Any]]:
        own = [record for record in vllm.records() if record.get("client_request_id", "").startswith(PREFIX)]
        return own if len(own) >= REQUESTS else []

    records = wait_until(found, "the records")
    assert (result["completed"], len(records)) == (REQUESTS, REQUESTS)
    assert {record["outcome"] for record in records} == {"ok"}
    assert sum(record["gen_ai.usage.output_tokens"] for record in records) == result["total_output_tokens"]
    assert sum(record["gen_ai.usage.input_tokens"] for record in records) == result["total_input_tokens"]
