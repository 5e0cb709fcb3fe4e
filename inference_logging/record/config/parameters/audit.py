"""The audit lane: records that are on the device before the caller goes on."""

from __future__ import annotations

from typing import Final, Literal

from inference_logging.record.config.fields import GIB, KIB, MIB, OptionalPath, Parameters, RingBytes, parameter

AUDIT_SUFFIX: Final = "-audit"
"""What the audit lane adds to the service's name for its segments, or its database."""


class AuditParameters(Parameters):
    """The audit lane: records that are on the device before the caller goes on."""

    audit: Literal["off", "on"] = parameter(
        "off",
        'on: a second queue with its own listener and output, for records made with Logger.audit or lane="audit": '
        "written in groups, each followed by an fsync, and only then freed from the queue.",
    )
    audit_sink: Literal["file", "sqlite"] = parameter(
        "file",
        "Where audit records go. file: segments with the prefix <service_name>-audit; sqlite: the database "
        "<service_name>-audit.sqlite in WAL mode with synchronous=FULL, through Python's sqlite3.",
    )
    audit_directory: OptionalPath = parameter(
        None,
        "Directory for the audit segments or database of one queue directory; created with mode 0700. Empty = audit "
        "below directory. Neither retention_s nor quota_bytes removes anything there.",
        allowed="a path, or empty",
    )
    audit_queue_bytes: RingBytes = parameter(
        4 * MIB,
        "Size of one process's audit queue, rounded up to a power of two and allocated at start. audit_overflow "
        "decides what happens when it is full. One record takes at most a quarter of it, and at most max_record_bytes.",
        unit="bytes",
        limits=(64 * KIB, 4 * GIB),
        advanced=True,
    )
    audit_commit_interval_s: float = parameter(
        0.1,
        "Longest time an audit record that is not awaited waits for its commit. An awaited one requests a commit at "
        "once, and all records that come while one commit runs share the next.",
        unit="s",
        limits=(0.01, 60.0),
    )
    audit_commit_records: int = parameter(
        50,
        "Audit records of a process after which a commit is requested without waiting for audit_commit_interval_s.",
        unit="records",
        limits=(1, 1_000_000),
        advanced=True,
    )
    audit_overflow: Literal["block", "fail", "count"] = parameter(
        "block",
        "What happens to an audit record if the queue is full. block: it waits up to audit_block_s for room, then "
        "fails; fail: AuditError at once, which the middleware answers with 503 if the answer has not begun; count: it "
        "is dropped and counted as queue_full, and the call returns False.",
    )
    audit_block_s: float = parameter(
        5.0,
        "Longest wait for room in the queue (block), and for the commit of an awaited record; then AuditError, or "
        "False with count. An accepted record stays in the queue and is written once the disk takes it.",
        unit="s",
        limits=(0.0, 600.0),
        advanced=True,
    )
    audit_chain: Literal["blake3", "sha256", "off"] = parameter(
        "blake3",
        "Hash chain over all audit lines: each carries a hash over the line before and itself, so that `verify` shows "
        "which lines were altered, removed or added. off: no chain.",
    )
    audit_chain_key_file: OptionalPath = parameter(
        None,
        "File with the key of the chain, 64 lowercase hexadecimal digits: without it a chain cannot be computed again. "
        "Empty = no key: the chain then shows accidents, and changes made without knowledge of the chain. An "
        "unreadable file is an error at start.",
        allowed="the path of a readable file, or empty",
    )
