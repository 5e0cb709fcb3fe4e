"""Programs in C write into the same queue, segments and books as a Python server."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from inference_logging import Config, Logger, get_logger
from tests.kit.books import assert_books_balance, variables
from tests.kit.c_programs import LIBRARY, STRICT, STRICT_C, compiled, configuration_file, run
from tests.kit.identity import SECRET, keyed_hash
from tests.kit.signatures import Configure
from tests.kit.support import read_records, wait_until

pytestmark = pytest.mark.servers

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def program(installed: Path) -> Path:
    """Return the program."""
    return compiled(installed, "program.c", *STRICT_C)


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program that the documentation shows."""
    source = tmp_path_factory.mktemp("documented") / "program.c"
    text = (HERE.parents[1] / "docs" / "c.md").read_text()
    source.write_text(text.split("```c\n")[1].split("```")[0])
    return source


def test_values_of_each_kind_arrive_and_wrong_records_are_counted(program: Path, configure: Configure) -> None:
    config = configure()
    refused, counts = run(program, "kinds", config)
    assert "c.kinds" in refused
    assert "already registered" in refused
    assert counts == "2 2 3"
    records = read_records(config.directory, "c.kinds")
    expected = {
        "null": None,
        "yes": True,
        "int": -5,
        "uint": 2**64 - 1,
        "double": 0.25,
        "text": 'a"\n\ufffd',
        "json": {"a": [1, 2]},
        "lines": "{\n}",
        "no_json": '{"a":',
    }
    fields = {"nothing", "unknown", *expected}
    assert [{name: record[name] for name in record.keys() & fields} for record in records] == [expected] * 2
    assert [record["severity_text"] for record in records] == ["INFO", "ERROR"]
    assert_books_balance(config)


def test_threads_lose_nothing(program: Path, configure: Configure) -> None:
    config = configure()
    assert run(program, "threads", config)[0].split()[:2] == ["20000", "20000"]
    found = Counter((record["thread"], record["number"]) for record in read_records(config.directory, "c.counted"))
    assert found == Counter((thread, number) for thread in range(4) for number in range(5000))
    assert_books_balance(config)


def test_a_signal_handler_may_emit(program: Path, configure: Configure) -> None:
    config = configure()
    handled, counts = run(program, "signals", config)
    records = read_records(config.directory, "c.counted")
    by_thread = [[record["number"] for record in records if record["thread"] == thread] for thread in (0, 1)]
    assert [sorted(numbers) for numbers in by_thread] == [list(range(len(numbers))) for numbers in by_thread]
    assert len(by_thread[1]) == int(handled) >= 100
    accepted, written, _ = map(int, counts.split())
    assert accepted == written == len(records)
    assert_books_balance(config)


def test_a_forked_child_has_a_queue_of_its_own(program: Path, configure: Configure) -> None:
    config = configure()
    assert run(program, "forks", config) == ["2 2 0"]
    records = read_records(config.directory, "c.counted")
    assert sorted((record["thread"], record["number"]) for record in records) == [(0, 0), (0, 1), (1, 0)]
    assert len({record["boot_id"] for record in records}) == 2
    assert_books_balance(config)


def test_requests_have_the_records_of_the_middleware(program: Path, keyed: Configure) -> None:
    config = keyed(record_headers=["x-tenant=tenant.id", "x-team", "authorization:hash=api_key.hash"])
    ids, counts = run(program, "requests", config)
    assert counts == "5 5 0"
    trace_id, span_id, request_id = ids.split()
    assert trace_id == "0af7651916cd43dd8448eb211c80319c"
    whole, failed, left = read_records(config.directory, "request")
    assert [record["outcome"] for record in (whole, failed, left)] == ["ok", "error", "client_disconnect"]
    assert [record["client_request_id"] for record in (whole, failed, left)] == ["whole", "failed", "left"]
    assert (whole["trace_id"], whole["span_id"], whole["request_id"]) == (trace_id, span_id, request_id)
    expected = {
        "http.request.method": "POST",
        "url.path": "/v1/models/7",
        "http.route": "/v1/models/{id}",
        "network.protocol.version": "1.1",
        "client.address": "192.0.2.7",
        "http.response.status_code": 200,
        "gen_ai.request.model": "tiny",
        "tenant.id": "acme",
        "http.request.header.x-team": "search",
    }
    assert {name: whole.get(name) for name in expected} == expected
    assert whole["api_key.hash"] == keyed_hash(SECRET)
    assert not [name for name in whole if "other" in name]
    assert "tenant.id" not in failed
    assert whole["chunks"] == 2
    assert failed["error.type"] == "std::bad_alloc"
    inside, outside = read_records(config.directory, "c.step")
    assert (inside["trace_id"], inside["request_id"], inside["step"]) == (trace_id, request_id, "decode")
    assert "trace_id" not in outside
    assert_books_balance(config)


def test_what_is_wrong_is_named(program: Path) -> None:
    wrong = '{"queue_bytes": 5, "sink_of_dreams": true}'
    ended = subprocess.run([program, "wrong", wrong], capture_output=True, text=True, timeout=180, check=True)
    version, *parameters, null = ended.stdout.splitlines()
    assert version == "abi_version=2: this library has version 1"
    assert [sentence for sentence in parameters if "sink_of_dreams" in sentence]
    assert [sentence for sentence in parameters if "queue_bytes" in sentence]
    assert null == "log=NULL: must be an open log"


def test_a_killed_program_has_lost_nothing_that_was_accepted(program: Path, configure: Configure) -> None:
    config = configure()
    accepted = 0
    for _ in range(5):
        with subprocess.Popen(
            [program, "forever", configuration_file(config, config.directory.parent / "configuration.json")],
            stdout=subprocess.PIPE,
            text=True,
        ) as running:
            assert running.stdout is not None
            numbers = [int(running.stdout.readline()) for _ in range(20)]
            running.send_signal(signal.SIGKILL)
            numbers += [int(line) for line in running.stdout.read().splitlines()]
        accepted += numbers[-1]
    assert_books_balance(config)
    counted = Counter(record["boot_id"] for record in read_records(config.directory, "c.counted"))
    assert len(counted) == 5
    assert counted.total() >= accepted
    died = [record["outcome"] for record in read_records(config.directory, "request")]
    assert died == ["process_died"] * 5


def test_c_and_python_share_a_listener(program: Path, configure: Configure) -> None:
    config = configure(listener="external")
    listening = configure(listener="thread")
    with Logger(listening) as listener:
        with Logger(config):
            get_logger("python").info("beside")
            assert run(program, "produce", config) == ["1000 1000 0"]
        wait_until(lambda: len(listener.service.queues()) == 1, "the queues of both to be gone")
    assert Counter(record["number"] for record in read_records(listening.directory, "c.counted")).total() == 1000
    assert [record["message"] for record in read_records(listening.directory, "log")] == ["beside"]
    assert_books_balance(listening)


def test_the_header_is_one_of_cpp_too(installed: Path, configure: Configure) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    program = compiled(installed, "program.c", "g++", "-std=c++17", "-D_GNU_SOURCE", *STRICT, "-x", "c++")
    assert run(program, "produce", configure()) == ["1000 1000 0"]


@pytest.mark.parametrize(
    ("sanitizer", "command"),
    [
        ("address,undefined", "kinds"),
        ("address,undefined", "threads"),
        ("address,undefined", "requests"),
        ("valgrind", "kinds"),
        ("valgrind", "requests"),
    ],
)
def test_sanitizers_find_nothing(installed: Path, configure: Configure, sanitizer: str, command: str) -> None:
    config = configure()
    if sanitizer == "valgrind":
        if shutil.which("valgrind") is None:
            pytest.skip("needs valgrind")
        leaks = ("--errors-for-leak-kinds=definite", "--show-leak-kinds=definite")
        runner = ["valgrind", "--quiet", "--fair-sched=yes", "--error-exitcode=9", "--leak-check=full", *leaks]
        program = compiled(installed, "program.c", *STRICT_C)
    else:
        runner, flags = [], (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-g")
        program = compiled(installed, "program.c", *STRICT_C, *flags)
    configuration = configuration_file(config, config.directory.parent / "configuration.json")
    ended = subprocess.run(
        [*runner, program, command, configuration], capture_output=True, text=True, timeout=180, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert_books_balance(config)


@pytest.mark.parametrize("linked", ["shared", "static"])
def test_pkg_config_finds_the_library(installed: Path, documented: Path, configure: Configure, linked: str) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("needs pkg-config")
    asked = ["pkg-config", "--cflags", "--libs", *(["--static"] if linked == "static" else []), "inferlog"]
    environment = os.environ | {"PKG_CONFIG_PATH": f"{installed}/lib/pkgconfig"}
    flags = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout
    if linked == "static":
        flags = flags.replace("-linferlog", "-l:libinferlog.a")
    program = documented.with_name(linked)
    subprocess.run(["cc", *STRICT, "-o", program, documented, *flags.split()], check=True)
    assert_documented(program, configure(), {"LD_LIBRARY_PATH": f"{installed}/lib"} if linked == "shared" else {})


@pytest.mark.parametrize("target", ["inferlog", "static"])
def test_cmake_finds_the_library(installed: Path, documented: Path, configure: Configure, target: str) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    directory = documented.with_name(f"cmake-{target}")
    directory.mkdir()
    (directory / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(documented C)\nfind_package(inferlog REQUIRED)\n"
        f"add_executable(program {documented})\ntarget_link_libraries(program inferlog::{target})\n"
    )
    built = directory / "built"
    subprocess.run(
        ["cmake", "-S", directory, "-B", built, f"-DCMAKE_PREFIX_PATH={installed}"], check=True, capture_output=True
    )
    subprocess.run(["cmake", "--build", built], check=True, capture_output=True)
    assert_documented(built / "program", configure())


def assert_documented(program: Path, config: Config, more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Check that the documented program is on record; its configuration comes from the environment."""
    subprocess.run([program], env=os.environ | variables(config) | dict(more), timeout=180, check=True)
    (record,) = read_records(config.directory, "pipeline.inference")
    assert (record["model"], record["latency_ms"], record["tokens"]) == ("resnet50", 4.2, 1)
    assert_books_balance(config)


def test_the_library_exports_its_functions_with_their_version_and_nothing_else(installed: Path) -> None:
    symbols = read_elf("--dyn-syms", installed / "lib" / "libinferlog.so")
    defined = [line.split() for line in symbols.splitlines() if re.match(r"\s*\d+:", line)]
    exported = {words[7] for words in defined if words[4] in ("GLOBAL", "WEAK") and words[6] not in ("UND", "ABS")}
    declared = set(re.findall(r"\b(inferlog_\w+)\(", (LIBRARY / "include" / "inferlog.h").read_text()))
    helpers = {"absent", "bool", "bytes", "double", "int", "string", "text_of", "uint", "value_of"}
    functions = declared - {f"inferlog_{name}" for name in helpers}
    assert exported == {f"{name}@@INFERLOG_1" for name in functions}


def test_a_program_asks_for_the_version_that_it_was_linked_with(program: Path) -> None:
    needed = read_elf("--version-info", program).split("Version needs section")[1]
    (of_library,) = [part for part in needed.split("File: ")[1:] if part.startswith("libinferlog.so.1")]
    assert re.findall(r"Name: (\w+)", of_library) == ["INFERLOG_1"]


def read_elf(what: str, path: Path) -> str:
    """Return what readelf says of a file."""
    if shutil.which("readelf") is None:
        pytest.skip("needs readelf (on Debian: binutils)")
    asked = ["readelf", "--wide", what, str(path)]
    return subprocess.run(asked, env=os.environ | {"LC_ALL": "C"}, capture_output=True, text=True, check=True).stdout


MODEL = {
    "triton.model_version": "7",
    "triton.model_instance_name": "session 0",
    "triton.batch_size": 4,
    "triton.batch_position": 3,
    "triton.correlation_id": "camera-2",
}
LONGEST_LIST = 1280
LONGEST_NAME = 96


@pytest.fixture(scope="module")
def model(installed: Path) -> Path:
    """Return the program that models serve."""
    return compiled(installed, "model.c", *STRICT_C)


def test_a_model_and_its_tensors_are_on_record(model: Path, configure: Configure) -> None:
    config = configure()
    run(model, "served", config)
    whole, stream, broken, failed = read_records(config.directory, "request")
    assert (whole["triton.model_name"], whole["outcome"], whole["client_request_id"]) == ("whole", "ok", "whole")
    assert {name: whole.get(name) for name in MODEL} == MODEL
    assert whole["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert whole["triton.inputs"] == [
        {"name": 'image "1"', "datatype": "FP32", "shape": [1, 64], "bytes": 256},
        {"name": "scale", "datatype": "FP64", "shape": [], "bytes": 8},
    ]
    assert whole["triton.outputs"] == [{"name": "class", "datatype": "INT64", "shape": [1], "bytes": 8}]
    assert not {"url.path", "http.request.method", "chunks"} & whole.keys()
    assert (stream["outcome"], stream["chunks"]) == ("ok", 2)
    assert (broken["outcome"], broken["error.type"]) == ("error", "response_incomplete")
    assert (failed["outcome"], failed["error.type"]) == ("error", "OUT_OF_MEMORY")
    assert failed["triton.model_name"] == "n" * LONGEST_NAME
    shown = failed["triton.inputs"]
    written = len(json.dumps(shown, separators=(",", ":")))
    assert written <= LONGEST_LIST + 1 < written + written / len(shown)
    assert_books_balance(config)


def test_an_inference_that_the_process_does_not_survive_names_its_model(model: Path, configure: Configure) -> None:
    config = configure()
    configuration = configuration_file(config, config.directory.parent / "configuration.json")
    ended = subprocess.run([model, "died", configuration], timeout=180, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert_books_balance(config)
    (record,) = read_records(config.directory, "request")
    assert (record["outcome"], record["triton.model_name"]) == ("process_died", "dying")
    assert {name: record.get(name) for name in MODEL} == MODEL


def test_sanitizers_find_nothing_where_models_are_served(installed: Path, configure: Configure) -> None:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    config = configure()
    run(compiled(installed, "model.c", *STRICT_C, *flags), "served", config)
    assert_books_balance(config)


@pytest.fixture(scope="module")
def reader(installed: Path) -> Path:
    """Return the program that reads a queue file."""
    return compiled(installed, "layout.c", *STRICT_C)


def test_a_queue_file_has_the_documented_layout(reader: Path, configure: Configure) -> None:
    config = configure(listener="external")  # nobody reads the queue meanwhile
    ended = look(reader, config)
    assert ended.returncode == 0, ended.stderr
    assert_books_balance(config)
    assert [record["event_name"] for record in read_records(config.directory) if "seq" in record] == [
        *("golden", "golden"),
        "request",
    ]


def test_each_byte_that_differs_is_reported(installed: Path, configure: Configure, tmp_path: Path) -> None:
    """The reader looks at what it claims to: with one number changed, it says where."""
    source = (HERE / "layout.c").read_text()
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


def look(reader: Path, config: Config) -> subprocess.CompletedProcess[str]:
    """Let the reader look at its own queue."""
    configuration = configuration_file(config, config.directory.parent / "configuration.json")
    line = [str(reader), str(configuration), str(config.resolved_queue_directory)]
    return subprocess.run(line, capture_output=True, text=True, timeout=180, check=False)
