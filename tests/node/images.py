"""The images of a pod, as the documentation builds them, in archives that a node imports: no registry is asked."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from tests.kit.images import DOCKERFILE, ROOT, Storage, furnished, wheels
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
    """Return the archives of all images that the project makes, and of the FastAPI application."""
    read = [*wheels(), DOCKERFILE, APP, LOCK, Path(__file__), *TOOLS.glob("otelcol.stamp")]
    return kept(TOOLS / "images", [path.read_bytes() for path in read], _build)


def kept(folder: Path, made_of: Iterable[bytes], make: Callable[[Builder], None]) -> list[Path]:
    """Return the archives in a folder; they are built if what they are made of has changed since the last time."""
    stamp, digest = folder / "stamp", hashlib.sha256(b"".join(made_of)).hexdigest()
    if not (stamp.exists() and stamp.read_text(encoding="ascii") == digest):
        with replacing(folder) as new, tempfile.TemporaryDirectory() as place:
            storage = Storage(Path(place) / "storage")
            context = Path(place) / "context"
            context.mkdir()
            make(Builder(storage, storage.debian(), furnished(context), new))
            storage.close()
            (new / "stamp").write_text(digest, encoding="ascii")
    return sorted(folder.glob("*.tar"))


class Builder(NamedTuple):
    """What builds images from a context into a folder of archives, on a Debian."""

    storage: Storage
    base: str
    context: Path
    archives: Path

    def build(self, name: str, *options: str | Path) -> None:
        """Build one image, with the context's Dockerfile unless the options name another."""
        given = ("--isolation=chroot", "--pull-never", f"--build-arg=BASE={self.base}", *options, f"--tag={name}")
        self.storage.buildah("build", *given, self.context)
        archive = self.archives / f"{re.sub('[/:]', '-', name)}.tar"
        self.storage.buildah("push", name, f"docker-archive:{archive}:{name}")

    def build_text(self, name: str, dockerfile: str) -> None:
        """Build one image from the text of a Dockerfile."""
        (self.context / "Dockerfile").write_text(dockerfile, encoding="utf-8")
        self.build(name)


def _build(builder: Builder) -> None:
    version = yaml.safe_load((ROOT / "helm" / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    builder.build(f"{REGISTRY}inferlog-listener:{version}", f"--file={DOCKERFILE}", "--target=listener")
    builder.build(f"{REGISTRY}inferlog:{version}", f"--file={DOCKERFILE}")
    (builder.context / ".dockerignore").unlink()
    shutil.copy(APP, builder.context)
    (builder.context / "greedy.py").write_text(GREEDY, encoding="utf-8")
    builder.build_text(f"{REGISTRY}chat:1.0", CHAT)
    builder.build_text(PAUSE, 'ARG BASE\nFROM ${BASE}\nENTRYPOINT ["/bin/sleep", "infinity"]\n')
    if (TOOLS / "otelcol.stamp").exists():
        shutil.copy(tool("otelcol"), builder.context / "otelcol-contrib")
        builder.build_text(_collector(), COLLECTOR)


def _collector() -> str:
    """Return the name of the quick start's shipper, as an engine completes it."""
    shippers = yaml.safe_load((ROOT / "helm" / "files" / "shippers.yaml").read_text(encoding="utf-8"))
    image = shippers["otel-collector"]
    return f"docker.io/{image['repository']}:{image['tag']}"
