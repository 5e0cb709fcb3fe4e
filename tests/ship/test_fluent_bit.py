"""Segments by the chart's Fluent Bit to real servers: whatever is killed on the way, each record arrives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from inference_logging.ship.opensearch import RENAMED, template
from tests.chart.chart import render
from tests.kit.segment_files import log, request, write_segment
from tests.kit.servers import free_port
from tests.kit.support import FRAMING, parse, wait_until
from tests.ship.arrived import Record, compare
from tests.ship.loki import Loki
from tests.ship.lossy import LossyWire
from tests.ship.opensearch import BUSY, INDEX, THERE, OpenSearch, Request, Server
from tests.ship.programs import Program, scraped
from tests.ship.stage import Stage
from tests.tools.tools import tool

VOLUME: Final = "/var/log/inference-logging"
"""The pod's, which has the segments in a directory of the same name as those of the tests."""


class FluentBit(Program):
    """The program with its state in ``directory``, which has ``segments``."""

    def __init__(self, directory: Path, destination: str, endpoint: str, **given: Any) -> None:
        binary, self.port = tool("fluent-bit"), free_port()
        destinations = {"type": destination, "endpoints": [endpoint], **given}
        text = render(shipper={"type": "fluent-bit"}, destination=destinations).file("fluent-bit.yaml")
        changes = {VOLUME: str(directory), "0.0.0.0": "127.0.0.1", "http_port: 2020": f"http_port: {self.port}"}
        for of_pod, of_test in changes.items():
            assert of_pod in text, of_pod
            text = text.replace(of_pod, of_test)
        file = directory / "fluent-bit.yaml"
        file.write_text(text, encoding="utf-8")
        environment = {"POD_NAME": "pod", "DESTINATION_TOKEN": "key"}
        super().__init__([binary, f"--config={file}"], directory / "fluent-bit.log", self._answers, environment)

    def _answers(self) -> bool:
        return self._count() is not None

    def delivered(self) -> float:
        """Return how many records the destination has taken in this life of it."""
        (count,) = wait_until(self._count, "Fluent Bit's metrics")
        return float(count)

    def _count(self) -> tuple[float] | None:
        try:
            return (scraped(self.port, "fluentbit_output_proc_records_total", "/api/v2/metrics/prometheus"),)
        except OSError:  # while its numbers change, the page is not found
            return None

    def wait_until_delivered(self, more: int) -> None:
        """Wait until at least so many more are delivered."""
        wanted = self.delivered() + more
        wait_until(lambda: self.delivered() >= wanted, f"{wanted} records to be delivered", 90)


pytestmark = pytest.mark.shipping
Start = Callable[[Any], Any]

PATIENCE_S: Final = 120.0
"""It tries again after up to half a minute."""


@pytest.fixture(autouse=True)
def program() -> None:
    """Skip what cannot be, before another program is started."""
    tool("fluent-bit")


def records(server: OpenSearch) -> list[Record]:
    """Return the records in the index, without the lines that are the segments' own."""
    return [as_sent(one) for one in server.documents() if one["event_name"] not in FRAMING]


def as_sent(document: Record) -> Record:
    names = {name: given for given, name in RENAMED.items()}
    return {
        names.get(name, name): value for name, value in document.items() if name not in ("@timestamp", "_index", "_id")
    }


def test_each_record_is_there_though_fluent_bit_the_server_and_the_listener_are_killed(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    server: OpenSearch = start(OpenSearch(tmp_path / "opensearch"))
    server.ask("PUT", f"_index_template/{INDEX}", template(INDEX))
    staged = stage()

    def look() -> list[Record] | None:
        found = records(server)
        return None if compare(written, found).missing else found

    with LossyWire(server.port) as wire:
        shipper: FluentBit = start(FluentBit(tmp_path, "elasticsearch", f"http://127.0.0.1:{wire.port}"))
        with staged.load() as load:
            for _ in range(2):
                shipper.wait_until_delivered(200)
                server.kill()
                load.wait_for(100)
                shipper.restart()
                server.start()
                shipper.wait_until_delivered(200)
                # What was sent is there, and Fluent Bit does not know it.
                wire.lose_an_answer()
                shipper.restart()
                wire.break_off()
            staged.kill_listener()
            shipper.wait_until_delivered(200)
            wire.lose_an_answer()
            server.kill()
            server.start()
            wire.break_off()
        written = staged.end()
        arrived: list[Record] = wait_until(look, "every record", PATIENCE_S)
    assert staged.show("the chart's Fluent Bit, to OpenSearch", written, arrived, shipper, server) == 0
    (index,) = {one["_index"] for one in server.documents()}
    assert index == INDEX


def test_each_record_is_in_loki_though_fluent_bit_and_loki_are_killed(
    stage: Callable[..., Stage], start: Start, tmp_path: Path
) -> None:
    loki: Loki = start(Loki(tmp_path / "loki"))
    staged = stage()
    shipper: FluentBit = start(FluentBit(tmp_path, "loki", loki.url.removesuffix("/otlp")))
    with staged.load() as load:
        for _ in range(2):
            shipper.wait_until_delivered(200)
            loki.kill()
            load.wait_for(100)
            shipper.restart()
            loki.start()
            shipper.wait_until_delivered(200)
            shipper.restart()
    written = staged.end()

    def look() -> list[Record] | None:
        lines: list[Record] = [parse(entry.line.encode()) for entry in loki.entries()]
        found = [one for one in lines if one["event_name"] not in FRAMING]
        return None if compare(written, found).missing else found

    arrived: list[Record] = wait_until(look, "every record", PATIENCE_S)
    staged.show("the chart's Fluent Bit, to Loki", written, arrived, shipper, loki)


def test_what_fluent_bit_sends_has_the_templates_types(start: Start, tmp_path: Path) -> None:
    server: OpenSearch = start(OpenSearch(tmp_path / "opensearch"))
    server.ask("PUT", f"_index_template/{INDEX}", template(INDEX))
    body = {"http.request.body": '{"a": "the secret plan"}', "http.request.body.size": 24}
    written = [request(1, gen_ai__usage__input_tokens=7) | body, log(2, "hello world", attributes={"a": [1, {"b": 2}]})]
    write_segment(tmp_path / "segments", written)
    start(FluentBit(tmp_path, "elasticsearch", server.url))
    wait_until(lambda: server.count({"match_all": {}}) == 4, "two records, header and footer", PATIENCE_S)
    assert records(server) == written
    assert server.count({"range": {"http.request.body.size": {"gt": 20}}}) == 1
    assert server.count({"range": {"timestamp": {"gte": written[1]["timestamp"]}}}) == 1
    assert server.count({"match": {"message": "WORLD"}}) == 1
    assert server.count({"simple_query_string": {"query": "secret", "fields": ["*"], "lenient": True}}) == 0


class OneBusy(Server):
    """Has no room for the third document of the first request; knows by its id what it has."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.results: list[list[int]] = []

    def answer(self, asked: Request, content_bytes: int) -> tuple[int, bytes, dict[str, str]]:
        """Return a result for each document."""
        results = []
        for at, head in enumerate(asked.content[::2]):
            one = head["create"]["_id"]
            busy = not self.results and at == 2
            results.append(BUSY[0] if busy else THERE[0] if one in self.ids else 201)
            self.ids |= set() if busy else {one}
        self.results.append(results)
        items = [{"create": {"status": status}} for status in results]
        return 200, orjson.dumps({"took": 1, "errors": {*results} != {201}, "items": items}), {}


def test_a_record_that_the_server_has_no_room_for_is_sent_again(start: Start, tmp_path: Path) -> None:
    write_segment(tmp_path / "segments", [log(at) for at in range(4)])
    with contextlib.closing(OneBusy()) as server:
        url = f"http://127.0.0.1:{server.server.server_port}"
        shipper: FluentBit = start(FluentBit(tmp_path, "elasticsearch", url))
        wait_until(lambda: shipper.delivered() == 6, "four records, header and footer to be acknowledged", PATIENCE_S)
        shipper.end()
    assert len(server.ids) == 6
    # That all of them are there ends it, though nothing of the last request was new.
    assert server.results == [[201, 201, 429, 201, 201, 201], [409, 409, 201, 409, 409, 409], [409] * 6]
