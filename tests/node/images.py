"""The images of a pod, as the documentation builds them, in archives that a node imports: no registry is asked."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

import yaml

from tests.images import DOCKERFILE, ROOT, Storage, furnished, wheels
from tests.tools.tools import tool
from tools.programs.workshop import TOOLS, replacing

PAUSE: Final = "localhost/pause:1"
"""What holds the namespaces of a pod."""
REGISTRY: Final = "registry.example.com/"
"""What the pages say."""
APP: Final = ROOT / "examples" / "fastapi" / "app.py"
LOCK: Final = ROOT / "release" / "locks" / "runtime.txt"
CHAT: Final = """
ARG BASE
FROM ${BASE}
COPY dist/wheels /wheels
RUN python -m venv /venv && /venv/bin/pip install --quiet --find-links /wheels inferlog fastapi uvicorn
COPY app.py greedy.py /app/
WORKDIR /app
ENV PATH=/venv/bin:$PATH
"""
GREEDY: Final = """
from app import app


@app.post("/allocate")
def allocate() -> None:
    kept = []
    while True:
        kept.append(b"x" * (1 << 24))
"""
"""The application with a route that takes memory until the kernel ends its process."""

COLLECTOR: Final = """
FROM scratch
COPY otelcol-contrib /
USER 10001
ENTRYPOINT ["/otelcol-contrib"]
"""


def archives() -> list[Path]:
    """Return the archives of all images; they are built if anything in them has changed since the last time."""
    folder, made_of = TOOLS / "images", _fingerprint()
    stamp = folder / "stamp"
    if not (stamp.exists() and stamp.read_text(encoding="ascii") == made_of):
        with replacing(folder) as new, tempfile.TemporaryDirectory() as place:
            storage = Storage(Path(place) / "storage")
            _build(storage, furnished(Path(place)), new)
            storage.close()
            (new / "stamp").write_text(made_of, encoding="ascii")
    return sorted(folder.glob("*.tar"))


def _fingerprint() -> str:
    read = [*wheels(), DOCKERFILE, APP, LOCK, Path(__file__), *TOOLS.glob("otelcol.stamp")]
    return hashlib.sha256(b"".join(map(Path.read_bytes, read))).hexdigest()


def _build(storage: Storage, context: Path, archives: Path) -> None:
    base = storage.debian()
    version = yaml.safe_load((ROOT / "helm" / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]

    def build(name: str, *options: str) -> None:
        given = ("--isolation=chroot", "--pull-never", f"--build-arg=BASE={base}", *options, f"--tag={name}")
        storage.buildah("build", *given, context)
        storage.buildah("push", name, f"docker-archive:{archives / re.sub('[/:]', '-', name)}.tar:{name}")

    build(f"{REGISTRY}inferlog-listener:{version}", f"--file={DOCKERFILE}", "--target=listener")
    build(f"{REGISTRY}inferlog:{version}", f"--file={DOCKERFILE}")
    (context / ".dockerignore").unlink()
    shutil.copy(APP, context)
    (context / "greedy.py").write_text(GREEDY, encoding="utf-8")
    own = {f"{REGISTRY}chat:1.0": CHAT, PAUSE: 'ARG BASE\nFROM ${BASE}\nENTRYPOINT ["/bin/sleep", "infinity"]\n'}
    if (TOOLS / "otelcol.stamp").exists():
        shutil.copy(tool("otelcol"), context / "otelcol-contrib")
        own[_collector()] = COLLECTOR
    for name, text in own.items():
        (context / "Dockerfile").write_text(text, encoding="utf-8")
        build(name)


def _collector() -> str:
    """Return the name of the quick start's shipper, as an engine completes it."""
    shippers = yaml.safe_load((ROOT / "helm" / "files" / "shippers.yaml").read_text(encoding="utf-8"))
    image = shippers["otel-collector"]
    return f"docker.io/{image['repository']}:{image['tag']}"


if __name__ == "__main__":
    archives()
