"""What pages show of Helm: each installation of theirs is rendered."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.tools.tools import tool

pytestmark = pytest.mark.chart

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/kubernetes-node.md", "docs/kubernetes.md", "helm/README.md")


def installations() -> list[tuple[str, str]]:
    """Return each ``helm install`` of a page's blocks, without these words."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for block in blocks:
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page, line.removeprefix("helm install ")) for line in lines if line.startswith("helm install ")]
    return found


@pytest.mark.parametrize(("page", "line"), installations())
def test_an_installation_of_a_page_is_rendered(page: str, line: str) -> None:
    command = [str(tool("helm")), "template", *shlex.split(line, comments=True)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{page}: {done.stderr}"
    kinds = {thing["kind"] for thing in yaml.safe_load_all(done.stdout) if thing}
    assert kinds & {"Deployment", "DaemonSet"}


def test_every_page_has_one() -> None:
    assert {page for page, _ in installations()} == set(PAGES)
