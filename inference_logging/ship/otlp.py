"""An OpenTelemetry endpoint as a destination: OTLP over HTTP, binary, compressed; logs, traces, or both.

If a batch is answered with 400, 413 or 422, it is halved until the record that is the cause is alone: that one is
refused, and counted. After any other failure the batch is sent again.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import parse_qs

from inference_logging.errors import MissingExtraError
from inference_logging.ship.http import Answer, AnswerError, ask, open_client, retry_after_s
from inference_logging.ship.line import Destination, Line, Sent, in_halves

REFUSED: Final = (400, 413, 422)


class Signal(Protocol):
    """What OTLP has a service of its own for: how lines become a request to it."""

    path: str
    """Of the service, below the endpoint."""

    def takes(self, line: Line, /) -> bool:
        """Return whether the line is shipped."""

    def request(self, lines: Sequence[Line], /) -> bytes:
        """Return what is posted."""

    def rejected(self, answer: bytes, /) -> int:
        """Return how many of them a successful answer rejects. Raises ValueError for what is none."""


def open_otlp(to: str, *, timeout_s: float, headers: Mapping[str, str], ca_file: str | None) -> Destination:
    """Return the destination of a ``ship_to`` of OTLP. Raises ``MissingExtraError``, and ``ConfigError`` for a file."""
    try:
        from inference_logging.ship.otlp_messages import Logs, Traces
    except ImportError:
        raise MissingExtraError("shipping by OTLP", "opentelemetry-proto", "ship") from None
    kind, _, rest = to.partition("://")
    place, _, query = rest.partition("?")
    host, _, path = place.partition("/")
    endpoint = f"{kind.partition('+')[2]}://{host}"

    def opened(signal: Signal, path: str) -> OtlpDestination:
        return OtlpDestination(f"{endpoint}{path}", signal, timeout_s=timeout_s, headers=headers, ca_file=ca_file)

    match parse_qs(query).get("signal", ["logs"]):
        case ["both"]:
            base = f"/{path.rstrip('/')}" if path else ""
            return BothSignals(*(opened(signal, f"{base}{signal.path}") for signal in (Logs(), Traces())))
        case ["traces"]:
            return opened(Traces(), f"/{path}" if path else Traces.path)
    return opened(Logs(), f"/{path}" if path else Logs.path)


class OtlpDestination:
    """The service at ``url``; ``ca_file``: certificates to check it against, in place of the system's."""

    def __init__(
        self, url: str, signal: Signal, *, timeout_s: float, headers: Mapping[str, str], ca_file: str | None
    ) -> None:
        """Prepare a client; it connects when it has something to send."""
        self._url, self._signal = url, signal
        ours = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        self._client = open_client(
            "shipping by OTLP", timeout_s=timeout_s, headers={**headers, **ours}, ca_file=ca_file
        )

    def send(self, lines: Sequence[Line]) -> Sent:
        """Send in one request those that the signal takes."""
        taken = [line for line in lines if self._signal.takes(line)]
        sent = self._send(taken) if taken else Sent()
        sent.left_out = len(lines) - len(taken)
        return sent

    def _send(self, lines: Sequence[Line]) -> Sent:
        import httpx

        content = gzip.compress(self._signal.request(lines), compresslevel=1)
        try:
            answer = ask(self._client, "POST", self._url, content=content)
        except AnswerError as error:
            return Sent(lines, str(error), error.kind, error.retry_after_s)
        except (httpx.HTTPError, OSError) as error:
            return Sent.failing(lines, error)
        if answer.is_success:
            return self._accepted(lines, answer)
        status = answer.status_code
        if status not in REFUSED:
            return Sent(lines, f"status {status}: {answer.text[:200]}", str(status), retry_after_s(answer))
        if len(lines) == 1:
            return Sent().refuse(lines[0], str(status), answer.text)
        return in_halves(lines, self._send)

    def _accepted(self, lines: Sequence[Line], answer: Answer) -> Sent:
        """Return what an answer of success says; one that is no answer to OTLP comes from somebody else."""
        try:
            rejected = self._rejected(answer)
        except (ValueError, TypeError, KeyError, AttributeError):
            text = f"status {answer.status_code}: the answer is not OTLP: {answer.media_type}: {answer.text[:100]}"
            return Sent(lines, text, "not_otlp")
        return Sent(refused={"partial_success": rejected} if rejected else {})

    def _rejected(self, answer: Answer) -> int:
        if answer.content and answer.media_type == "application/json":
            # Some servers answer so whatever they were sent.
            said = answer.json().get("partialSuccess") or {}
            return sum(int(count) for name, count in said.items() if name.startswith("rejected"))
        if answer.media_type not in ("", "application/x-protobuf", "application/protobuf") and answer.content:
            raise ValueError(answer.media_type)
        return self._signal.rejected(answer.content)

    def convert(self, line: Line) -> bytes:
        """Return what is posted of a line; nothing, if the signal does not take it."""
        return self._signal.request([line]) if self._signal.takes(line) else b""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class BothSignals:
    """Two destinations of the same lines. One has arrived once both have it; only what failed is sent again."""

    def __init__(self, *destinations: Destination) -> None:
        """Take them; closing is theirs from here on."""
        self._destinations = destinations
        self._taken: list[set[tuple[str, int]]] = [set() for _ in destinations]
        """Lines that one has, and another not yet."""

    def send(self, lines: Sequence[Line]) -> Sent:
        """Send to each what it does not have. A record that both refuse is counted twice; none is left out."""
        both = Sent()
        for destination, taken in zip(self._destinations, self._taken, strict=True):
            wanted = [line for line in lines if line.place not in taken]
            sent = destination.send(wanted) if wanted else Sent()
            taken.update({line.place for line in wanted} - {line.place for line in sent.failed})
            both = both.joined(sent)
        both.failed = [line for line in lines if not all(line.place in taken for taken in self._taken)]
        waiting = {line.place for line in both.failed}
        for taken in self._taken:
            taken.intersection_update(waiting)
        return both

    def convert(self, line: Line) -> Sequence[object]:
        """Return what each makes of a line."""
        return [destination.convert(line) for destination in self._destinations]

    def close(self) -> None:
        """Close both."""
        for destination in self._destinations:
            destination.close()
