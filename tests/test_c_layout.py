"""A C program finds what the layout's description says in a queue file, by numbers of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_logging import Config
from tests.books import assert_books_balance
from tests.c_programs import STRICT_C, compiled, configuration_file
from tests.support import read_records

pytestmark = pytest.mark.servers

Configure = Callable[..., Config]


@pytest.fixture(scope="module")
def program(installed: Path) -> Path:
    """Return the program."""
    return compiled(installed, "layout.c", *STRICT_C)


def test_a_queue_file_has_the_documented_layout(program: Path, configure: Configure) -> None:
    config = configure(listener="external")  # nobody reads the queue meanwhile
    ended = look(program, config)
    assert ended.returncode == 0, ended.stderr
    assert_books_balance(config)
    assert [record["event_name"] for record in read_records(config.directory) if "seq" in record] == [
        *("golden", "golden"),
        "request",
    ]


def test_each_byte_that_differs_is_reported(installed: Path, configure: Configure, tmp_path: Path) -> None:
    """The program looks at what it claims to: with one number changed, it says where."""
    source = (Path(__file__).parent / "c" / "layout.c").read_text()
    for number, (before, after, said) in enumerate(
        [
            ("VERSION = 3", "VERSION = 4", "version at 8: 3, not 4"),
            ("HEAD = 128", "HEAD = 136", "head's sequence at 140: 0, not 2"),
            ("COMMITTED = 2", "COMMITTED = 1", "state at"),
            ("slot + 336", "slot + 344", "path at"),
        ]
    ):
        assert source.count(before) == 1
        changed = tmp_path / f"layout_{number}.c"
        changed.write_text(source.replace(before, after))
        ended = look(compiled(installed, str(changed), *STRICT_C), configure(listener="external"))
        assert ended.returncode == 1
        assert said in ended.stderr
        shutil.rmtree(tmp_path / "queues")


def look(program: Path, config: Config) -> subprocess.CompletedProcess[str]:
    """Let the program look at its own queue."""
    configuration = configuration_file(config, config.directory.parent / "configuration.json")
    line = [str(program), str(configuration), str(config.resolved_queue_directory)]
    return subprocess.run(line, capture_output=True, text=True, timeout=180, check=False)
