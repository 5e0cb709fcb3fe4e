"""The rows of the tables of figures; `results_text.py` says how a template is read."""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """A row: what it is about, our figures, and what they are compared with."""

    what: str
    ours: str
    beside: str = ""


ROWS: Final = (
    Row(
        "the listener, JSON lines to tmpfs",
        "{bench > listener > JSON lines, wall time}, {bench > listener > JSON lines, CPU time} of CPU",
        "redacting where nothing is found: {bench > listener > the same, redacting: nothing found}; a field of each "
        "record replaced: {bench > listener > the same, redacting: one field}",
    ),
    Row(
        "by turns in one process, bare ASGI: a request, and one chunk of a stream",
        "{inside > in process, bare ASGI > added_us}, {inside > in process, bare ASGI, one chunk > added_us}",
        "the control: {inside > in process, bare ASGI > control}",
    ),
    Row(
        "the same, FastAPI",
        "{inside > in process, FastAPI > added_us}, {inside > in process, FastAPI, one chunk > added_us}",
        "the control: {inside > in process, FastAPI > control}",
    ),
    Row(
        "audit lane, commits/s that 256 tasks await",
        "{bench > audit > awaited commits}",
        "÷ an fsync per record: {bench > audit > ÷ fsync per record}; in 32 threads: "
        "{bench > audit > ÷ fsync per record in threads}",
    ),
    Row(
        "`listen` without Python: start, and memory beside the queues",
        "{bench > sidecar > start, without Python}, {bench > sidecar > resident beside mapped queues, without Python}",
        "with Python: {bench > sidecar > start, with Python}, "
        "{bench > sidecar > resident beside mapped queues, with Python}",
    ),
    Row(
        "`verify`, plain segments in memory",
        "{bench > verify > verify: gaps, footers, checksums}",
        "÷ Python with orjson, gaps only: {bench > verify > ratio}",
    ),
    Row(
        "Parsl, time of a task, all of its lines kept by us ÷ logging off",
        "{parsl > figures > ours ÷ off}",
        "the control: {parsl > figures > control ÷ off}; Parsl's own files: {parsl > figures > default ÷ off}",
    ),
    Row(
        "Triton, CPU of server, stubs and listener that a request to the model takes more",
        "{triton > Triton: HTTP > CPU that ours adds to a request}, "
        "{triton > Triton: HTTP > CPU per request: ours ÷ none} as much",
        "the control: {triton > Triton: HTTP > CPU per request: control ÷ none}; infer/s ± 1 % would take "
        "{triton > Triton: HTTP > minutes that infer/s}",
    ),
    Row(
        "Triton, one call of many in a row inside of `execute`",
        "{triton > Triton: one call > ours, begin and end}, of which the request's own fields take "
        "{triton > Triton: one call > reading the same fields}",
        "a file, flushed for each line: {triton > Triton: one call > stdlib_file}; QueueHandler: "
        "{triton > Triton: one call > stdlib_queue}; pb_utils.Logger: {triton > Triton: one call > triton_logger}",
    ),
)


class Table(NamedTuple):
    """Ways of logging in one real server, as ratios to none: of each column a section, a figure and its head."""

    part: str
    about: str
    columns: tuple[tuple[str, str, str], ...]
    rows: tuple[tuple[str, str], ...]


TABLES: Final = (
    Table(
        "vllm",
        "A real vLLM (`make bench-vllm`): ratios to a server without logging, lowest and highest round beside them",
        (
            ("vLLM, 64 tokens streamed", "req/s", "req/s, 64 tokens streamed"),
            ("vLLM, 64 tokens streamed", "CPU of the API server per request", "API server's CPU per request"),
            ("vLLM, 16 tokens", "req/s", "req/s, 16 tokens"),
            ("vLLM, 16 tokens", "CPU of the API server per request", "API server's CPU per request"),
        ),
        (
            ("control", "a second server without logging (control)"),
            ("ours", "ours"),
            ("stdlib-file", "standard library, FileHandler on the request path"),
            ("stdlib-queue", "standard library, QueueHandler"),
            ("vllm-outputs", "vLLM's `--enable-log-outputs` (no prompts)"),
        ),
    ),
    Table(
        "triton",
        "A real Triton with models that give back four numbers (`make bench-triton`): ratios to no logging",
        (
            ("Triton: HTTP", "infer/s", "infer/s"),
            ("Triton: HTTP", "p99", "p99"),
            ("Triton: HTTP", "CPU per request", "CPU per request"),
        ),
        (
            ("control", "no logging against itself (control)"),
            ("ours", "ours"),
            ("ours_without_tensors", "ours, `triton_tensors: off`"),
            ("stdlib_file", "a file, flushed for each line (`logging`)"),
            ("stdlib_queue", "`QueueHandler` and `QueueListener`"),
            ("triton_logger", "`pb_utils.Logger`"),
        ),
    ),
)
