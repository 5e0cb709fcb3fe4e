"""How the logging is, from one look at the queue directory: ok, pressured, producer_died, degraded or stuck.

`grade` is the whole rule, a pure function: what was seen, the limits, and which thresholds counted as reached before. A
`Watch` does the looking, in whichever process is asked: so a listener that hangs is noticed from outside of it.

* ok: nothing to say.
* pressured: something is not as it should be, and nothing is lost by waiting. Still ready.
* producer_died: a process that has a name (a model instance of Triton) has died, and none of that name has come back.
  Nothing is lost; but Triton does not start it again and says that it is ready. Still ready: other instances serve.
* degraded: so much waits that records will soon be refused. Not ready: others should take the load.
* stuck: records wait, and the listener that should take them makes no rounds. Not ready and not alive: of all
  these, the one that a restart mends. A full disk or a failing sink is not.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from inference_logging.config import Config

State = Literal["ok", "pressured", "producer_died", "degraded", "stuck"]
STATES: Final[tuple[State, ...]] = ("ok", "pressured", "producer_died", "degraded", "stuck")
"""From well to worst."""

MEMORY_S: Final = 60.0
"""How long refused records and failed writes count as recent, and how far back the drain rate is measured."""
LONGEST_RETRY_AFTER_S: Final = 60
SHORTEST_RATE_SPAN_S: Final = 0.5


@dataclass(frozen=True)
class Limits:
    """The thresholds, as configured."""

    backlog_records: float
    backlog_ratio: float
    pressured_ratio: float
    clear_ratio: float
    oldest_age_s: float
    stuck_after_s: float

    @classmethod
    def of(cls, config: Config) -> Limits:
        """Take the thresholds out of a configuration."""
        return cls(
            backlog_records=config.health_backlog_records,
            backlog_ratio=config.health_backlog_ratio,
            pressured_ratio=config.health_pressured_ratio,
            clear_ratio=config.health_clear_ratio,
            oldest_age_s=config.flush_interval_s + config.health_oldest_age_s,
            stuck_after_s=config.stuck_after_s,
        )


@dataclass(frozen=True)
class FailingSink:
    """A sink that takes nothing at the moment."""

    name: str
    state: str
    for_s: float
    error: str


@dataclass(frozen=True)
class Snapshot:
    """What one look saw, of all processes of the queue directory together."""

    records: int = 0
    """Waiting for the listener."""
    fill: float = 0.0
    """Share of its bytes that the fullest queue uses."""
    oldest_age_s: float | None = None
    stalled_s: float = 0.0
    """Since the listener's last round, or since this process began to look, whichever is shorter."""
    leader: Literal["here", "elsewhere", "nobody"] = "here"
    """Which process has the lock of the one listener."""
    listens: bool = True
    """Whether this process is configured to run a listener."""
    failing: tuple[FailingSink, ...] = ()
    fallback: bool = False
    recent_drops: int = 0
    recent_errors: int = 0
    recent_s: float = MEMORY_S
    """The time that the two counted: since the first look within `MEMORY_S`, or since the one before it."""
    dead_producers: tuple[str, ...] = ()
    """The names of processes that have died, had one, and have no successor of that name."""
    records_per_s: float | None = None
    """Measured rate of writing; None: not known yet."""


@dataclass(frozen=True)
class Reason:
    """One thing that is not as it should be, in words and numbers."""

    state: State
    kind: str
    text: str


@dataclass(frozen=True)
class Health:
    """A state, and every reason for it; the worst reason decides."""

    snapshot: Snapshot
    reasons: tuple[Reason, ...] = ()
    retry_after_s: int = 1
    """When to ask again, if not ready: the time in which the backlog clears at the measured rate."""

    @property
    def state(self) -> State:
        """The worst of the reasons' states."""
        return max((reason.state for reason in self.reasons), key=STATES.index, default="ok")

    @property
    def ready(self) -> bool:
        """Whether this process should get requests, as far as its logging is concerned."""
        return self.state in {"ok", "pressured", "producer_died"}

    @property
    def alive(self) -> bool:
        """Whether a restart would mend nothing here: false only where this process's own listener should go on."""
        return self.state != "stuck" or not self.snapshot.listens

    @property
    def reached(self) -> frozenset[tuple[str, State]]:
        """The thresholds that count as reached, for the next look."""
        return frozenset((reason.kind, reason.state) for reason in self.reasons)


def grade(snapshot: Snapshot, limits: Limits, before: Health | None = None) -> Health:
    """Grade what was seen; ``before`` is the last grade, whose thresholds stay reached until they are cleared."""
    reasons = (
        *_backlog(snapshot, limits, before),
        *_listener(snapshot, limits),
        *_sinks(snapshot),
        *_producers(snapshot),
    )
    return Health(snapshot, reasons, _retry_after_s(snapshot, limits))


def _backlog(seen: Snapshot, limits: Limits, before: Health | None) -> Iterator[Reason]:
    reached = before.reached if before is not None else frozenset()

    def passes(kind: str, state: State, value: float, limit: float) -> bool:
        return value > limit * limits.clear_ratio if (kind, state) in reached else value >= limit

    grades: tuple[tuple[State, float], ...] = (("degraded", 1.0), ("pressured", limits.pressured_ratio))
    for state, share in grades:
        limit = limits.backlog_records * share
        if passes("records", state, seen.records, limit):
            yield Reason(
                state,
                "records",
                f"{_waiting(seen.records)} for the listener; {state} from {limit:g}, cleared at "
                f"{limit * limits.clear_ratio:g}",
            )
            break
    for state, share in grades:
        limit = limits.backlog_ratio * share
        if passes("bytes", state, seen.fill, limit):
            yield Reason(
                state,
                "bytes",
                f"{seen.fill:.0%} of a queue's bytes are in use; {state} from {limit:.0%}, cleared at "
                f"{limit * limits.clear_ratio:.0%}",
            )
            break
    age = seen.oldest_age_s
    if age is not None and passes("age", "pressured", age, limits.oldest_age_s):
        text = f"the oldest record has waited {age:.1f} s; pressured from {limits.oldest_age_s:g} s"
        yield Reason("pressured", "age", text)


def _listener(seen: Snapshot, limits: Limits) -> Iterator[Reason]:
    if seen.leader == "nobody" and not seen.listens:
        waits = f"{_waiting(seen.records)} until one does" if seen.records else "none waits yet"
        text = f"listener is external and no process listens; {waits}"
        yield Reason("pressured", "no_listener", text)
    elif seen.stalled_s >= limits.stuck_after_s:
        who = "no process listens" if seen.leader == "nobody" else f"the listener ({seen.leader}) makes no rounds"
        since = f"for {seen.stalled_s:.1f} s; stuck from {limits.stuck_after_s:g} s"
        if seen.records:
            yield Reason("stuck", "listener", f"{who} {since}, and {_waiting(seen.records)}")
        else:
            yield Reason("pressured", "listener", f"{who} {since} with records waiting, and none waits")


def _waiting(records: int) -> str:
    return "1 record waits" if records == 1 else f"{records} records wait"


def _sinks(seen: Snapshot) -> Iterator[Reason]:
    for sink in seen.failing:
        why = f" ({sink.error})" if sink.error else ""
        yield Reason("pressured", "sink", f"sink {sink.name} is {sink.state} for {sink.for_s:.1f} s{why}")
    if seen.fallback:
        yield Reason("pressured", "fallback", "the fallback writes in the place of the sink")
    if seen.recent_errors and not seen.failing:
        yield Reason("pressured", "errors", f"{seen.recent_errors} writes failed within the last {seen.recent_s:.0f} s")
    if seen.recent_drops:
        yield Reason(
            "pressured", "drops", f"{seen.recent_drops} records were lost within the last {seen.recent_s:.0f} s"
        )


def _producers(seen: Snapshot) -> Iterator[Reason]:
    for name in seen.dead_producers:
        yield Reason("producer_died", "producer", f"{name} has died and has not come back")


def _retry_after_s(seen: Snapshot, limits: Limits) -> int:
    if seen.records_per_s is None or not seen.records:
        return 1
    cleared = limits.clear_ratio * min(
        limits.backlog_records, seen.records * limits.backlog_ratio / seen.fill if seen.fill else math.inf
    )
    surplus = seen.records - cleared
    if surplus <= 0:
        return 1
    if seen.records_per_s * LONGEST_RETRY_AFTER_S <= surplus:
        return LONGEST_RETRY_AFTER_S
    return max(1, math.ceil(surplus / seen.records_per_s))


class Source(Protocol):
    """What a watch looks at: the native service."""

    def queues(self) -> list[dict[str, Any]]:
        """Return every queue of the directory."""

    def listener_stats(self) -> dict[str, Any]:
        """Return what the listener publishes."""

    def sinks(self) -> list[dict[str, Any]]:
        """Return what it publishes about each sink."""

    def dead_producers(self) -> list[str]:
        """Return the names of processes that have died and have no successor."""


class Watch:
    """Looks at the logging of a queue directory from one process, and remembers what the next look needs."""

    def __init__(
        self,
        config: Config,
        source: Source,
        clock: Callable[[], float] = time.monotonic,
        *,
        audit: Source | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Begin to look at ``source``, and at the ``audit`` lane if there is one; ``clock`` is monotonic, in s."""
        self._source = source
        self._clock = clock
        self._limits = limits if limits is not None else Limits.of(config)
        self._audit: Watch | None = None
        if audit is not None:
            age_s = config.audit_commit_interval_s + config.health_oldest_age_s
            self._audit = Watch(config, audit, clock, limits=replace(self._limits, oldest_age_s=age_s))
        self._listens = config.listener == "thread"
        self._started_s = clock()
        self._dropped_of: dict[str, int] = {}
        self._dropped = 0
        self._drops, self._errors, self._writes = Recent(), Recent(), Recent()
        self._health: Health | None = None
        self._health = self.look()

    def look(self) -> Health:
        """Look now and grade what is seen; the audit lane's reasons count like those of the fast one."""
        own = self._health = grade(self._snapshot(self._clock()), self._limits, self._health)
        if self._audit is None:
            return own
        audit = self._audit.look()
        found = (Reason(why.state, f"audit.{why.kind}", f"audit lane: {why.text}") for why in audit.reasons)
        return Health(own.snapshot, (*own.reasons, *found), max(own.retry_after_s, audit.retry_after_s))

    def _snapshot(self, now_s: float) -> Snapshot:
        queues, listener = self._source.queues(), self._source.listener_stats()
        heartbeat_age_s = listener["heartbeat_age_s"]
        watched_s = now_s - self._started_s
        self._errors.add(now_s, listener["sink_errors"])
        self._drops.add(now_s, self._count_drops(queues))
        self._writes.add(now_s, listener["records_written"])
        unix_nano = time.time_ns()
        oldest = min((queue["oldest_unix_nano"] for queue in queues if queue["oldest_unix_nano"]), default=None)
        return Snapshot(
            records=sum(queue["in_queue"] for queue in queues),
            fill=max((queue["used_bytes"] / queue["capacity_bytes"] for queue in queues), default=0.0),
            oldest_age_s=max(0, unix_nano - oldest) / 1e9 if oldest is not None else None,
            stalled_s=watched_s if heartbeat_age_s is None else min(watched_s, heartbeat_age_s),
            leader=listener["leader"],
            listens=self._listens,
            failing=tuple(_failing(sink, unix_nano) for sink in self._source.sinks() if sink["state"] != "ok"),
            fallback=listener["fallback_active"],
            dead_producers=tuple(self._source.dead_producers()),
            recent_drops=self._drops.increase,
            recent_errors=self._errors.increase,
            recent_s=self._drops.span_s,
            records_per_s=self._writes.per_s,
        )

    def _count_drops(self, queues: list[dict[str, Any]]) -> int:
        """Return how many records were lost in all that this watch has seen, also by processes that are gone by now."""
        seen = {}
        for queue in queues:
            lost = {reason: counts for reason, counts in queue["dropped"].items() if reason != "shutdown_deadline"}
            seen[queue["boot_id"]] = sum(sum(counts.values()) for counts in lost.values())
        self._dropped += sum(max(0, count - self._dropped_of.get(boot_id, 0)) for boot_id, count in seen.items())
        self._dropped_of = seen
        return self._dropped


class Recent:
    """By how much a counter grew within the last `MEMORY_S`; where looks are rarer, since the one before."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, now_s: float, total: int) -> None:
        """Note the counter's value; one that is smaller than before (a new directory) begins anew."""
        seen = self._seen
        if seen and total < seen[-1][1]:
            seen.clear()
        if len(seen) >= 2 and now_s - seen[-2][0] < SHORTEST_RATE_SPAN_S:
            seen.pop()  # Looked at more often than it matters: bounded memory.
        seen.append((now_s, total))
        while len(seen) > 1 and seen[1][0] <= now_s - MEMORY_S:
            seen.popleft()

    @property
    def increase(self) -> int:
        """The growth."""
        return self._seen[-1][1] - self._seen[0][1] if self._seen else 0

    @property
    def span_s(self) -> float:
        """The time that was looked at."""
        return self._seen[-1][0] - self._seen[0][0] if self._seen else 0.0

    @property
    def per_s(self) -> float | None:
        """The growth per second; None where too short a time was looked at."""
        return self.increase / self.span_s if self.span_s >= SHORTEST_RATE_SPAN_S else None


def _failing(sink: dict[str, Any], unix_nano: int) -> FailingSink:
    for_s = max(0, unix_nano - sink["since_unix_nano"]) / 1e9
    return FailingSink(sink["name"], sink["state"], for_s, str(sink["last_error"] or ""))
