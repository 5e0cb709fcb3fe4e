"""A configuration file harms nobody by its form: one sentence says what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference_logging import Config
from inference_logging.errors import ConfigError
from tests.command_line import run

TENFOLD = "".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 10))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (f"version: 1\na0: &a0 [x]\n{TENFOLD}", "line 8: its values have more than 1,048,576 letters"),
        ("version: 1\nlevel: &l " + "x" * 2000 + f"\na: [{', '.join(['*l'] * 600)}]\n", "line 3: its values have"),
        ("version: 1\na: &a [*a]\n", "line 2: it contains itself"),
        ("version: 1\na: " + "[" * 5000 + "]" * 5000, "it is nested too deeply"),
        ("version: 1\na: " + "{a: " * 5000 + "}" * 5000, "it is nested too deeply"),
        ("version: 1\nlevel: INFO\nqueue_bytes: 1 MiB\nlevel: WARN\n", "line 4: 'level' is given twice"),
        ("version: 1\nadvanced:\n  flush_records: 1\n  flush_records: 2\n", "line 4: 'flush_records' is given twice"),
        ("# " + "x" * (1 << 20), "it has more than 1,048,576 bytes"),
        ("version: 1\nqueue_bytes: " + "9" * 5000, "can't be read: Exceeds the limit"),
        ("version: 1\nlevel: 2026-99-99\n", "can't be read: month must be in"),
    ],
    ids=["aliases", "long alias", "itself", "lists", "mappings", "twice", "twice within", "long", "digits", "date"],
)
def test_a_file_that_is_refused_says_why_in_one_line(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "logging.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError) as refused:
        Config(config_file=path)
    (sentence,) = refused.value.args[0].splitlines()[1:]
    assert why in sentence
    assert len(sentence) < 400
    assert run("config", "check", str(path)).code == 1


def test_aliases_within_the_bounds_mean_what_they_say(tmp_path: Path) -> None:
    path = tmp_path / "logging.yaml"
    path.write_text("version: 1\nqueue_bytes: &size 2 MiB\nrotate_bytes: *size\nskip_paths: [/a, /a]\n")
    config = Config(config_file=path)
    assert (config.queue_bytes, config.rotate_bytes) == (2 << 20, 2 << 20)
