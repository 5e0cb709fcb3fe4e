"""examples/vllm/README.md runs as it stands, with the tiny model in the place of a real one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integrations.vllm_server import MODEL, SMALL, START_DEADLINE_S, VENV, environment_of, require_vllm
from tests.servers import free_port
from tests.support import read_records, wait_until
from tests.test_docs_shell import commands

pytestmark = pytest.mark.vllm

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "vllm" / "README.md"
NAME = "Qwen/Qwen3-0.6B"
READ_ONLY = """
import json, sys
from vllm.entrypoints.common.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
print([parser.parse_args(words[2:]).middleware for words in json.load(sys.stdin)])
"""


def test_each_command_of_a_page_has_options_that_vllm_takes() -> None:
    require_vllm()
    shown = [words for _, words in commands() if words[:2] == ("vllm", "serve")]
    assert len(shown) >= 3
    command, text = [str(VENV / "bin" / "python"), "-c", READ_ONLY], json.dumps(shown)
    done = subprocess.run(
        command, env=environment_of(), input=text, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("inference_logging.InferenceLoggingMiddleware") == len(shown)


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", EXAMPLE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@contextlib.contextmanager
def started(script: str, place: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the block that starts the server, with a small model on a port of our own."""
    own = shlex.join([str(MODEL), "--served-model-name", NAME, "--port", str(port), *SMALL])
    command = ["bash", "-ec", script.replace(f"vllm serve {NAME}", f"exec vllm serve {own}")]
    with (place / "said").open("wb") as said:
        process = subprocess.Popen(
            command, cwd=place, env=shell(place), stdout=said, stderr=said, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def shell(place: Path) -> dict[str, str]:
    """Return an environment in which the commands of vLLM's own are found, and queues lie in ``place``."""
    path = f"{VENV / 'bin'}:{os.environ['PATH']}"
    return environment_of(PATH=path, INFERENCE_LOGGING_QUEUE_DIRECTORY=str(place / "queues"))


def test_its_blocks_serve_record_and_verify(tmp_path: Path) -> None:
    require_vllm()
    _, start, ask, look = blocks()
    exports = "".join(line for line in start.splitlines(keepends=True) if line.startswith("export "))
    port = free_port()

    def run(script: str) -> str:
        there = script.replace("localhost:8000", f"127.0.0.1:{port}")
        command = ["bash", "-euo", "pipefail", "-c", exports + there]
        done = subprocess.run(
            command, cwd=tmp_path, env=shell(tmp_path), capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with started(start, tmp_path, port) as process:

        def is_ready() -> bool:
            assert process.poll() is None, (tmp_path / "said").read_text(encoding="utf-8")[-8000:]
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
            return False

        wait_until(is_ready, "vLLM to be ready", START_DEADLINE_S)
        # A model that knows nothing may end a text anywhere.
        assert run(ask.replace('"stream"', '"ignore_eos": true, "stream"')).endswith("data: [DONE]\n\n")
        wait_until(lambda: read_records(tmp_path / "logs", "request"), "its record")
        shown = run(look)
    (record,) = read_records(tmp_path / "logs", "request")
    assert (record["client_request_id"], record["outcome"], record["gen_ai.request.model"]) == ("first", "ok", NAME)
    assert (record["gen_ai.usage.output_tokens"], record["usage_source"]) == (16, "engine")
    assert record["engine.e2e_s"] > 0
    assert '"client_request_id": "first"' in shown
    assert "/v1/chat/completions" in shown
