"""The images of a pod, as the documentation builds them, in archives that a node imports: no registry is asked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import yaml

from tests.images import DOCKERFILE, ROOT, Storage, furnished
from tests.tools.tools import tool
from tests.tools.workshop import TOOLS

PAUSE: Final = "localhost/pause:1"
"""What holds the namespaces of a pod."""
REGISTRY: Final = "registry.example.com/"
"""What the pages say."""
CHAT: Final = """
ARG BASE
FROM ${BASE}
COPY dist/wheels /wheels
RUN python -m venv /venv && /venv/bin/pip install --quiet --find-links /wheels inferlog fastapi uvicorn
COPY app.py /app/
WORKDIR /app
ENV PATH=/venv/bin:$PATH
"""

COLLECTOR: Final = """
FROM scratch
COPY otelcol-contrib /
USER 10001
ENTRYPOINT ["/otelcol-contrib"]
"""


def archives(directory: Path) -> list[Path]:
    """Build all images, what is unchanged from the last time on, and return an archive of each."""
    storage = Storage(TOOLS / "images")
    base = storage.debian()
    version = yaml.safe_load((ROOT / "helm" / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    context = furnished(directory)
    built = ("build", "--isolation=chroot", "--layers", "--pull-never", f"--build-arg=BASE={base}")
    listener, tools = f"{REGISTRY}inferlog-listener:{version}", f"{REGISTRY}inferlog:{version}"
    storage.buildah(*built, f"--file={DOCKERFILE}", "--target=listener", f"--tag={listener}", context)
    storage.buildah(*built, f"--file={DOCKERFILE}", f"--tag={tools}", context)
    (context / ".dockerignore").unlink()
    (context / "Dockerfile").write_text(CHAT, encoding="utf-8")
    shutil.copy(ROOT / "examples" / "fastapi" / "app.py", context)
    chat = f"{REGISTRY}chat:1.0"
    storage.buildah(*built, f"--tag={chat}", context)
    names = [PAUSE, listener, tools, chat]
    if (TOOLS / "otelcol.stamp").exists():
        names.append(_collector(storage, context))
    container = storage.buildah("from", "--pull-never", base)
    storage.buildah("config", '--entrypoint=["sleep", "infinity"]', container)
    storage.buildah("commit", "--rm", container, PAUSE)
    return [_archive(storage, directory, name) for name in names]


def _collector(storage: Storage, context: Path) -> str:
    """Build that of the shipper that the quick start has, under its name in the chart."""
    values = yaml.safe_load((ROOT / "helm" / "values.yaml").read_text(encoding="utf-8"))
    image = values["shipper"]["images"]["otel-collector"]
    name = f"docker.io/{image['repository']}:{image['tag']}"
    shutil.copy(tool("otelcol"), context / "otelcol-contrib")
    (context / "Dockerfile").write_text(COLLECTOR, encoding="utf-8")
    storage.buildah("build", "--layers", f"--tag={name}", context)
    return name


def _archive(storage: Storage, directory: Path, name: str) -> Path:
    file = directory / f"{name.rpartition('/')[2].partition(':')[0]}.tar"
    storage.buildah("push", name, f"docker-archive:{file}:{name}")
    return file
