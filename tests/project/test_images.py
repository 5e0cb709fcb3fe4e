"""The images of the Dockerfile: what is in them, and that they run as the chart runs them.

That of the stage `listener` needs no base. The other one is built on a Debian of the same release, with its Python: the
base that the Dockerfile names lies in a registry.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from inference_logging import Config
from tests.kit.books import variables
from tests.kit.child import in_child
from tests.kit.images import LISTENER, ROOT, Image, Storage, furnished, wheels
from tests.kit.servers import free_port
from tests.kit.support import Recorded, answer, read_records, replying, wait_until
from tests.project.test_readme import DRIVER, blocks
from tests.ship.endpoint import Collector, collector

pytestmark = [
    pytest.mark.wheel,
    pytest.mark.servers,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root builds and starts images without an engine"),
    pytest.mark.skipif(shutil.which("buildah") is None, reason="needs buildah"),
    pytest.mark.skipif(not wheels(), reason="make wheel was not run"),
]

__all__ = ["collector"]  # a fixture
# What an engine calls a processor, and what a wheel's name does.
PROCESSORS = {"amd64": "x86_64", "arm64": "aarch64"}
# e_machine of an ELF header.
MACHINES = {"amd64": 62, "arm64": 183}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    storage = Storage(tmp_path_factory.mktemp("storage"))
    yield storage
    storage.close()


@pytest.fixture
def volume() -> Iterator[Path]:
    """Return a directory that the images' user reaches, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def config(volume: Path) -> Config:
    return Config(
        listener="external", service_name="t", directory=volume / "segments", queue_directory=volume / "queues"
    )


# --- the listener ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=PROCESSORS)
def listener(request: pytest.FixtureRequest, storage: Storage, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Build the image for a processor. The program out of its wheel stands for the stage that installs wheels."""
    machine = PROCESSORS[request.param]
    named = (wheel for wheel in wheels() if wheel.name.startswith("inferlog_listener-"))
    wheel = next((wheel for wheel in named if wheel.stem.endswith(machine)), None)
    if wheel is None:
        pytest.skip(f"no wheel for {machine}, which `make wheel` (this machine's) or `make wheels` (all) builds")
    place = tmp_path_factory.mktemp("wheel")
    program = place / "opt" / "inferlog" / "bin" / LISTENER
    program.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(f".data/scripts/{LISTENER}")]
        program.write_bytes(files.read(name))
    program.chmod(0o755)
    options = ("--target", "listener", "--arch", request.param, "--build-context", f"wheel={place}")
    return storage.build(request.param, place, *options)


def test_it_is_one_program_for_its_processor_of_15_mb_at_most_and_no_shell(listener: Image) -> None:
    (program,) = listener.files()
    assert listener.entrypoint == [f"/{program.relative_to(listener.root)}"]
    assert program.stat().st_size <= 15_000_000
    header = program.read_bytes()[:20]
    assert (header[:4], int.from_bytes(header[18:], "little")) == (b"\x7fELF", MACHINES[listener.architecture])


def test_it_drains_a_server_beside_it_answers_and_ends(listener: Image, volume: Path, config: Config) -> None:
    if os.uname().machine != PROCESSORS[listener.architecture]:
        pytest.skip(f"only a machine of {listener.architecture} runs it")
    assert_drains(listener, volume, config)


def assert_drains(image: Image, volume: Path, config: Config) -> None:
    """Start the image beside a server of its user, on a root that is read-only, and check what it does."""
    user, group = (int(number) for number in image.user.split(":"))
    os.chown(volume, user, group)

    def serve() -> None:
        os.setgid(group)
        os.setuid(user)
        recorded = Recorded(config)
        for _ in range(100):
            recorded.serve(replying(*answer(b"hello")))
        recorded.close()

    port = free_port()
    options = ("--metrics-port", str(port))
    assert image.command[:2] == ["listen", options[0]]
    process = image.start(*image.entrypoint, "listen", *options, volumes=[volume], **variables(config))
    try:

        def metrics() -> str:
            assert process.poll() is None, process.communicate()
            try:
                return httpx.get(f"http://127.0.0.1:{port}/metrics").text
            except httpx.TransportError:
                return ""

        wait_until(metrics, "an answer")
        assert os.waitpid(in_child(serve), 0)[1] == 0
        wait_until(lambda: len(read_records(config.directory, "request")) == 100, "100 records")
        assert "\n# TYPE inference_logging_records_written_total counter\n" in metrics()
        mounts = [line.split() for line in Path(f"/proc/{process.pid}/mountinfo").read_text().splitlines()]
        (options_of_root,) = [mount[5] for mount in mounts if mount[4] == "/"]
        assert "ro" in options_of_root.split(",")
        assert Path(f"/proc/{process.pid}").stat().st_uid == user != 0
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=180)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()
    own: dict[str, Any] = {"volumes": [volume], **variables(config)}
    image.run(*image.entrypoint, "recover", str(config.resolved_queue_directory), **own)
    image.run(*image.entrypoint, "verify", str(config.directory), **own)


# --- the tools -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(storage: Storage) -> str:
    """Make a Debian with Python and without a compiler, and name it as the Dockerfile's base, without the digest."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap")
    return storage.debian()


@pytest.fixture(scope="module")
def tools(storage: Storage, base: str, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Build the Dockerfile's last stage."""
    context = furnished(tmp_path_factory.mktemp("context"))
    return storage.build("tools", context, "--build-arg", f"BASE={base}")


@pytest.mark.images
def test_the_tools_drain_a_server_as_the_listener_does(tools: Image, volume: Path, config: Config) -> None:
    assert_drains(tools, volume, config)


@pytest.mark.images
def test_the_tools_ship_verify_and_read(tools: Image, volume: Path, config: Config, collector: Collector) -> None:
    os.chown(volume, *(int(number) for number in tools.user.split(":")))
    code = "from inference_logging import get_logger; [get_logger('t').warning('n %d', n) for n in range(100)]"
    own: dict[str, Any] = {"volumes": [volume], **variables(config), "INFERENCE_LOGGING_LISTENER": "thread"}
    tools.run("python", "-c", code, **own)
    tools.run("inference-logging", "ship", "--once", "--to", collector.url, **own)
    assert {f"n {n}" for n in range(100)} <= set(collector.messages())
    assert "100" in tools.run("inference-logging", "verify", **own)
    assert "n 99" in tools.run("inference-logging", "tail", str(config.directory), **own)
    counted = tools.run("inference-logging", "query", "SELECT count(*) FROM logs", **own)
    assert "100" in counted


# --- a fresh machine -------------------------------------------------------------------------------------------------


@pytest.mark.images
def test_the_two_commands_of_the_documentation_install_it_on_a_debian_without_a_compiler(
    storage: Storage, base: str, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    commands = [line.removeprefix("$ ") for line in text.partition("```console\n")[2].partition("```")[0].splitlines()]
    assert len(commands) == 2
    (tmp_path / "app.py").write_text(blocks("python", "README.md")[0] + DRIVER, encoding="utf-8")
    (tmp_path / "dist" / "wheels").mkdir(parents=True)
    for wheel in wheels():
        shutil.copy(wheel, tmp_path / "dist" / "wheels")
    script = "\n".join(
        (
            "set -e; cd /checkout; ! command -v cc gcc cargo",
            *commands,
            "venv/bin/pip install --quiet fastapi httpx",
            "venv/bin/python app.py",
            "cat logs/latest",
        )
    )
    container = storage.buildah("from", "--pull-never", base)
    run = ("run", "--isolation", "chroot", "--volume", f"{tmp_path}:/checkout", container, "--", "sh", "-c", script)
    assert '"event_name":"request"' in storage.buildah(*run)
