"""Images with a real server, each from the virtual environment that its own tests have: no vendor's image is pulled.

What the chart's README adds to a vendor's image is added to them in the same way.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import yaml

from tests.cluster.release import CHART
from tests.integrations import triton_server, vllm_server
from tests.kit.images import wheels
from tests.node.images import Builder, archives, kept
from tools.programs.workshop import TOOLS

PREFIX: Final = Path("opt/python")
TRITON: Final = Path("opt/tritonserver")
"""Where its vendor has it."""
VARIABLES: Final = {
    "PATH": f"/{PREFIX}/bin:/{TRITON}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LD_LIBRARY_PATH": f"/{PREFIX}/lib",
}
# What nothing here loads, such as kernels for GPUs, and this package: the image gets that by the Dockerfile.
NOT_COPIED: Final = """
config-*
dist-packages
idlelib
inference_logging
inferlog-*
nvidia/*/include
nvidia/cudnn/lib/libcudnn_*
nvidia/nvshmem/lib/*.a
site-packages
test
"""
# Libraries of an environment's Python that lie outside it: where there is none of a name, nothing needs it.
PARTS: Final = """
import contextlib, ctypes, json, sys, sysconfig
names = [f"libpython3.{sys.version_info.minor}.so.1.0", "libnuma.so.1"]
for name in names:
    with contextlib.suppress(OSError):
        ctypes.CDLL(name)
mapped = {line.split()[-1] for line in open("/proc/self/maps")}
libraries = {name: path for name in names for path in mapped if path.rpartition("/")[2].startswith(name)}
own = {name: sysconfig.get_path(name) for name in ("stdlib", "purelib")}
print(json.dumps({"program": sys._base_executable, "libraries": libraries, **own}))
"""


class Vendor(NamedTuple):
    """A real server in a virtual environment, its models, and what is set for it."""

    venv: Path
    models: tuple[Path, ...]
    variables: MappingProxyType[str, str]
    require: Callable[[], object]
    """Skips the test where there is no such environment."""


VENDORS: Final = {
    "vllm": Vendor(
        vllm_server.VENV, (vllm_server.MODEL,), MappingProxyType(vllm_server.ON_CPU), vllm_server.require_vllm
    ),
    "triton": Vendor(
        triton_server.VENV,
        (triton_server.MODELS / "echo", triton_server.MODELS / "stream"),
        MappingProxyType({}),
        triton_server.triton_directory,
    ),
}
"""By the preset."""


def archive(preset: str) -> Path:
    """Return the archive of a preset's image, named as its file of values has it; skip the test without a server."""
    vendor = VENDORS[preset]
    vendor.require()
    (packages,) = vendor.venv.glob("lib/python3*/site-packages")
    versions = sorted(path.name for path in packages.glob("*.dist-info"))
    models = [path for model in vendor.models for path in sorted(model.rglob("*")) if path.is_file()]
    read = [*wheels(), *models, Path(__file__)]
    made_of = [*(path.read_bytes() for path in read), "\n".join([*versions, dockerfile()]).encode()]
    (found,) = kept(TOOLS / f"images-{preset}", made_of, partial(_build, preset, vendor))
    return found


def dockerfile() -> str:
    """Return what the chart's README shows for the image of vLLM."""
    text = (CHART / "README.md").read_text(encoding="utf-8")
    found: list[str] = re.findall(r"^```dockerfile\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (only,) = found
    return only


def _build(preset: str, vendor: Vendor, builder: Builder) -> None:
    values = yaml.safe_load((CHART / f"values-{preset}.yaml").read_text(encoding="utf-8"))
    image, base = values["server"]["image"], f"localhost/{preset}"
    _furnish(vendor, builder, base)
    builder.build_text(f"{image['repository']}:{image['tag']}", re.sub("^FROM .*", f"FROM {base}", dockerfile()))


def _furnish(vendor: Vendor, builder: Builder, name: str) -> None:
    """Make the image that a vendor would have: a Python with the packages of an environment, and models."""
    asked = (vendor.venv / "bin" / "python", "-c", PARTS)
    parts: dict[str, Any] = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    program = Path(parts["program"]).resolve()
    library = PREFIX / "lib" / Path(parts["stdlib"]).name
    root = builder.context.with_name("root")
    commands = root / PREFIX / "bin"
    commands.mkdir(parents=True)
    shutil.copy(program, commands / "python3")
    (commands / "python").symlink_to("python3")
    for command in filter(Path.exists, (vendor.venv / "bin" / name for name in ("pip", "vllm"))):
        _, _, text = command.read_text(encoding="utf-8").partition("\n")
        (commands / command.name).write_text(f"#!/{PREFIX}/bin/python3\n{text}", encoding="utf-8")
        (commands / command.name).chmod(0o755)
    (root / library).mkdir(parents=True)
    for soname, path in parts["libraries"].items():
        shutil.copy(path, root / PREFIX / "lib" / soname)
    (root / TRITON).symlink_to(f"/{library}/site-packages/pytriton/tritonserver")
    for model in vendor.models:
        shutil.copytree(model, root / "models" / model.name, copy_function=shutil.copyfile)
    ignored = builder.context.with_name("ignored")
    ignored.write_text(NOT_COPIED, encoding="utf-8")
    container = builder.storage.buildah("from", "--pull-never", builder.base)

    def copy(source: Path, target: Path) -> None:
        given = (f"--ignorefile={ignored}", f"--contextdir={source}", "--quiet", container, source, f"/{target}")
        builder.storage.buildah("copy", *given)

    copy(Path(parts["stdlib"]), library)
    copy(Path(parts["purelib"]), library / "site-packages")
    copy(root, Path())
    variables = {**VARIABLES, **vendor.variables}
    builder.storage.buildah("config", *(f"--env={key}={value}" for key, value in variables.items()), container)
    builder.storage.buildah("commit", "--rm", "--quiet", container, name)


def main() -> None:
    """Build all images that the tests of this folder take, but for those of servers that are not set up."""
    archives()
    for preset, vendor in VENDORS.items():
        if (vendor.venv / ".stamp-package").exists():
            archive(preset)
        else:
            sys.stderr.write(f"no {vendor.venv.name}: the preset {preset} is not tested (`make {preset}` sets it up)\n")


if __name__ == "__main__":
    main()
