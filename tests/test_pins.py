"""What a release is made with is named by its content, and not by a tag that can move."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("workflow", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_every_action_of_a_workflow_is_named_by_its_commit(workflow: Path) -> None:
    used = re.findall(r"uses:\s*(\S+)", workflow.read_text(encoding="utf-8"))
    assert used
    assert [name for name in used if not re.fullmatch(r"[^@]+@[0-9a-f]{40}", name)] == []


def test_the_base_of_the_images_is_named_by_its_digest() -> None:
    (base,) = re.findall(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.fullmatch(r"python:[\w.-]+@sha256:[0-9a-f]{64}", base)
