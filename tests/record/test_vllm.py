"""What the middleware takes from vLLM's server: usage, ids, a request given up; and that it needs nothing of it."""

from __future__ import annotations

import sys
import types
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from inference_logging._native import RequestIds
from inference_logging.record.integrations.vllm import server as vllm
from inference_logging.record.integrations.vllm.records import ID_CHARACTERS, EngineRequests, Finished
from tests.kit.fake_vllm import RequestResponseMetadata, UsageInfo
from tests.kit.signatures import App, Message, Receive, Recording, Send
from tests.kit.support import Client, Recorded, answer, body_messages, http_scope, replying, serve_one

JSON = (b"content-type", b"application/json")


def numbers(*reasons: str | None, requests: int = 1) -> EngineRequests:
    """Return what the engine has of a request: as many as ``requests`` that ended for each of ``reasons``."""
    found = EngineRequests()
    for _ in range(requests):
        for reason in reasons or ("length",):
            found.add(Finished("chatcmpl-1-0", 0, 5, 7, 4, reason, 0.001, 0.002, 0.003, 0.006, 0))
    return found


class StatLogger:
    """Stands for the engine's part."""

    taken: EngineRequests | None = None
    attached: object = None
    with_running: bool | None = None

    def attach(self, client: object) -> None:
        self.attached = client

    def detach(self) -> None:
        self.attached = None

    def take(self, ids: RequestIds, *, with_running: bool) -> EngineRequests | None:
        assert ids.awaits_engine
        self.with_running = with_running
        return self.taken


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, types.ModuleType]:
    """As much of vLLM as is looked at."""
    names = ["vllm", "vllm.entrypoints", "vllm.entrypoints.generate", "vllm.entrypoints.generate.base"]
    names += ["vllm.entrypoints.generate.base.protocol", "vllm.entrypoints.serve", "vllm.entrypoints.serve.engine"]
    names += ["vllm.entrypoints.serve.engine.protocol", "inference_logging.record.integrations.vllm.engine"]
    made = {name: types.ModuleType(name) for name in names}
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    vars(made["vllm.entrypoints.generate.base.protocol"])["RequestResponseMetadata"] = RequestResponseMetadata
    vars(made["vllm.entrypoints.serve.engine.protocol"])["UsageInfo"] = UsageInfo
    vars(made["inference_logging.record.integrations.vllm.engine"])["EngineStatLogger"] = StatLogger
    return made


def application(stat_loggers: list[object] | None = None, endpoint: str | None = None) -> SimpleNamespace:
    """Return the FastAPI application of a server, as far as it is looked at."""
    observability = SimpleNamespace(otlp_traces_endpoint=endpoint)
    client = SimpleNamespace(
        vllm_config=SimpleNamespace(observability_config=observability),
        logger_manager=SimpleNamespace(stat_loggers=stat_loggers or []),
    )
    return SimpleNamespace(state=SimpleNamespace(engine_client=client))


def generating(metadata: object, *messages: Message) -> App:
    """Return an application that leaves ``metadata`` as vLLM's routes do."""
    reply = replying(*messages)

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["request_metadata"] = metadata
        await reply(scope, receive, send)

    return app


def chat(app: object) -> dict[str, Any]:
    return {**http_scope("/v1/chat/completions", "POST", [JSON]), "app": app}


def serve(recorded: Recorded, metadata: object, app: object, *parts: bytes) -> dict[str, Any]:
    """Let one chat be served and return its record."""
    messages = answer(*(parts or (b"{}",)), content_type=b"application/json")
    recorded.serve(generating(metadata, *messages), chat(app), body_messages(b"{}"))
    return recorded.request()


def test_the_usage_that_the_answer_does_not_report_is_the_engines(recorded: Recorded, modules: object) -> None:
    usage = UsageInfo(prompt_tokens=9, completion_tokens=32)
    record = serve(recorded, RequestResponseMetadata(request_id="chatcmpl-1", final_usage_info=usage), application())
    assert record["engine.request_id"] == "chatcmpl-1"
    assert (record["gen_ai.usage.input_tokens"], record["gen_ai.usage.output_tokens"]) == (9, 32)
    assert record["usage_source"] == "engine"
    assert "gen_ai.usage.cache_read.input_tokens" not in record
    assert not [key for key in record if key.startswith("engine.") and key != "engine.request_id"]


def test_the_usage_of_the_answer_goes_before_the_engines(recorded: Recorded, modules: object) -> None:
    usage = UsageInfo(prompt_tokens=9, completion_tokens=32, prompt_tokens_details=SimpleNamespace(cached_tokens=8))
    metadata = RequestResponseMetadata(request_id="chatcmpl-1", final_usage_info=usage)
    record = serve(recorded, metadata, application(), b'{"usage":{"prompt_tokens":1,"completion_tokens":2}}')
    assert (record["gen_ai.usage.input_tokens"], record["gen_ai.usage.output_tokens"]) == (1, 2)
    assert (record["usage_source"], record["gen_ai.usage.cache_read.input_tokens"]) == ("response", 8)


def test_a_request_that_did_not_get_to_generating_has_nothing_of_the_engine(
    recorded: Recorded, modules: object
) -> None:
    record = recorded.request_of(replying(*answer(b"{}", status=404)), chat(application()), body_messages(b"{}"))
    assert record["http.response.status_code"] == 404
    assert not [key for key in record if key.startswith("engine.") or key == "usage_source"]


def test_what_an_aborted_request_had_cost_is_known_without_the_engines_plugin_by_its_id_only(
    recorded: Recorded, modules: object
) -> None:
    record = serve(recorded, RequestResponseMetadata(request_id="cmpl-1"), application())
    assert record["engine.request_id"] == "cmpl-1"
    assert "usage_source" not in record


@pytest.mark.parametrize("length", [300, 100_000])
def test_a_long_id_of_a_client_is_cut_and_the_record_is_there(recorded: Recorded, modules: object, length: int) -> None:
    record = serve(recorded, RequestResponseMetadata(request_id="chatcmpl-" + "x" * length), application())
    assert len(record["engine.request_id"]) == ID_CHARACTERS


@pytest.fixture
def with_engine(recording: Recording) -> Recorded:
    return recording(engine_records="on")


def test_the_engines_times_join_the_record(with_engine: Recorded, modules: object) -> None:
    stat_logger = StatLogger()
    stat_logger.taken = numbers()
    record = serve(with_engine, RequestResponseMetadata(request_id="chatcmpl-1"), application([object(), stat_logger]))
    assert {key: value for key, value in record.items() if key.startswith(("engine.", "gen_ai.usage", "usage"))} == {
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "usage_source": "engine",
        "engine.request_id": "chatcmpl-1",
        "engine.requests": 1,
        "engine.finish_reasons": ["length"],
        "engine.queued_s": 0.001,
        "engine.prefill_s": 0.002,
        "engine.decode_s": 0.003,
        "engine.e2e_s": 0.006,
        "engine.preemptions": 0,
    }
    assert (record["outcome"], record["adjusted_count"]) == ("ok", 1.0)


def test_a_route_that_says_nothing_of_itself_has_the_engines_numbers_too(
    with_engine: Recorded, modules: object
) -> None:
    stat_logger = StatLogger()
    stat_logger.taken = numbers(requests=3)
    record = serve(with_engine, None, application([stat_logger]))
    assert (record["engine.request_id"], record["engine.requests"]) == ("chatcmpl-1-0", 3)
    assert (record["gen_ai.usage.input_tokens"], record["usage_source"]) == (15, "engine")


def test_the_cache_of_a_beam_search_is_not_that_of_its_prompt(with_engine: Recorded, modules: object) -> None:
    stat_logger = StatLogger()
    stat_logger.taken = numbers(requests=3)
    usage = UsageInfo(prompt_tokens=5, completion_tokens=3)
    metadata = RequestResponseMetadata(request_id="chatcmpl-1", final_usage_info=usage)
    record = serve(with_engine, metadata, application([stat_logger]))
    assert (record["gen_ai.usage.input_tokens"], record["gen_ai.usage.output_tokens"]) == (5, 3)
    assert "gen_ai.usage.cache_read.input_tokens" not in record


@pytest.mark.parametrize("errored", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_what_runs_still_counts_where_the_answer_breaks_off_or_the_engine_is_dead(
    with_engine: Recorded, modules: object, whole: bool, errored: bool
) -> None:
    stat_logger = StatLogger()
    app = application([stat_logger])
    app.state.engine_client.errored = errored
    with_engine.serve(replying(*answer(b"{}")[: 2 if whole else 1]), chat(app), body_messages(b"{}"))
    assert stat_logger.with_running is (errored or not whole)


def test_what_runs_still_counts_where_the_whole_answer_is_sent_to_a_client_that_has_left(
    with_engine: Recorded, modules: object
) -> None:
    stat_logger = StatLogger()

    async def answers_nobody(scope: Any, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        for message in answer(b"null"):
            await send(message)

    messages = [*body_messages(b"{}"), {"type": "http.disconnect"}]
    with_engine.serve(answers_nobody, chat(application([stat_logger])), messages)
    assert with_engine.request()["outcome"] == "client_disconnect"
    assert stat_logger.with_running is True


def test_of_very_many_choices_the_record_is_there(with_engine: Recorded, modules: object) -> None:
    stat_logger = StatLogger()
    stat_logger.taken = numbers(requests=16_384)
    record = serve(with_engine, RequestResponseMetadata(request_id="chatcmpl-1"), application([stat_logger]))
    assert (record["engine.requests"], record["engine.finish_reasons"]) == (16_384, ["length"] * 16)


@pytest.mark.parametrize(("asked", "outcome"), [(False, "server_shutdown"), (True, "aborted")])
def test_a_request_that_the_engine_gave_up_while_its_client_waited_was_aborted_or_shut_down(
    with_engine: Recorded, modules: object, asked: bool, outcome: str
) -> None:
    stat_logger = StatLogger()
    stat_logger.taken = numbers("abort")
    stat_logger.taken.asked = asked
    record = serve(with_engine, RequestResponseMetadata(request_id="chatcmpl-1"), application([stat_logger]))
    assert (record["outcome"], record["error.type"]) == (outcome, "engine_abort")


def test_without_the_plugin_it_is_said_once_and_requests_are_recorded(
    with_engine: Recorded, modules: object, capsys: pytest.CaptureFixture[str]
) -> None:
    record = serve(with_engine, RequestResponseMetadata(request_id="chatcmpl-1"), application())
    assert record["engine.request_id"] == "chatcmpl-1"
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "engine_records='on': vLLM has not loaded the plugin 'inference_logging'" in said
    (warning,) = with_engine.records("log")
    assert warning["severity_text"] == "WARN"
    assert f"inference_logging: {warning['message']}\n" == said


def test_the_engine_is_left_alone_when_the_middleware_closes(with_engine: Recorded, modules: object) -> None:
    stat_logger = StatLogger()
    app = application([stat_logger])
    server = vllm.attach(app, with_engine.config)
    assert server is not None
    assert stat_logger.attached is app.state.engine_client
    server.detach()
    assert stat_logger.attached is None


@pytest.mark.parametrize(
    ("module", "name", "model"),
    [
        ("vllm.entrypoints.generate.base.protocol", "RequestResponseMetadata", None),
        ("vllm.entrypoints.generate.base.protocol", "RequestResponseMetadata.final_usage_info", UsageInfo),
        ("vllm.entrypoints.serve.engine.protocol", "UsageInfo", None),
        ("vllm.entrypoints.serve.engine.protocol", "UsageInfo.prompt_tokens", RequestResponseMetadata),
    ],
)
def test_what_another_version_of_vllm_lacks_is_reported_at_start_by_name(
    recorded: Recorded,
    modules: dict[str, types.ModuleType],
    capsys: pytest.CaptureFixture[str],
    module: str,
    name: str,
    model: type[BaseModel] | None,
) -> None:
    held = vars(modules[module])
    name_of_class = name.partition(".")[0]
    if model is None:
        del held[name_of_class]
    else:
        held[name_of_class] = type(name_of_class, (model,), {})
    assert vllm.attach(application(), recorded.config) is not None
    said = capsys.readouterr().err
    assert said.startswith(
        "inference_logging: there are no engine's facts in the records of requests: this vLLM has no"
    )
    assert f"{module}.{name}" in said.strip().partition("this vLLM has no ")[2].split(", ")


def test_metadata_of_another_form_are_reported_once_and_requests_go_on(
    recorded: Recorded, modules: object, capsys: pytest.CaptureFixture[str]
) -> None:
    app = recorded.wrap(generating(SimpleNamespace(id="chatcmpl-1"), *answer(b"{}")))
    for _ in range(3):
        serve_one(app, chat(application()), Client())
    assert [record["outcome"] for record in recorded.records("request")] == ["ok"] * 3
    assert (
        capsys.readouterr().err.count("there are no more engine's facts in the records of requests: AttributeError")
        == 1
    )


def test_an_application_that_is_not_vllms_is_nothing_to_it(recorded: Recorded, modules: object) -> None:
    usage = UsageInfo(prompt_tokens=9, completion_tokens=32)
    metadata = RequestResponseMetadata(request_id="chatcmpl-1", final_usage_info=usage)
    for app in (None, object(), SimpleNamespace(state=SimpleNamespace())):
        assert vllm.attach(app, recorded.config) is None
    assert "usage_source" not in serve(recorded, metadata, None)


def headers_seen(recorded: Recorded, app: object, *sent: tuple[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the headers that the application sees, each of which must be there once."""
    seen: list[tuple[bytes, bytes]] = []

    async def looking(scope: Any, receive: Receive, send: Send) -> None:
        seen.extend(scope["headers"])
        for message in answer(b"{}"):
            await send(message)

    recorded.serve(looking, {**http_scope(headers=sent), "app": app})
    assert len(dict(seen)) == len(seen)
    return dict(seen)


def test_a_server_that_traces_is_given_our_trace_where_the_client_sent_none(
    recorded: Recorded, modules: object
) -> None:
    seen = headers_seen(recorded, application(endpoint="http://127.0.0.1:4318"))
    record = recorded.request()
    assert seen[b"traceparent"].decode().split("-")[1:3] == [record["trace_id"], record["span_id"]]
    assert b"x-request-id" not in seen


@pytest.mark.parametrize("header", [(b"traceparent", b"hostile"), (b"tracestate", b"a=b")])
def test_what_the_client_sent_of_a_trace_is_left_as_it_is(
    recorded: Recorded, modules: object, header: tuple[bytes, bytes]
) -> None:
    assert headers_seen(recorded, application(endpoint="http://127.0.0.1:4318"), header) == dict([header])


def test_a_server_that_does_not_trace_sees_what_the_client_sent(recorded: Recorded, modules: object) -> None:
    assert headers_seen(recorded, application(), (b"a", b"b")) == {b"a": b"b"}


def test_ids_can_be_given_to_any_application(recording: Recording) -> None:
    recorded = recording(forward_ids="on")
    seen = headers_seen(recorded, None)
    record = recorded.request()
    assert seen[b"x-request-id"].decode() == record["request_id"]
    assert seen[b"traceparent"].decode().split("-")[1] == record["trace_id"]
    seen = headers_seen(recorded, None, (b"X-Request-Id", b"mine"))
    assert (seen[b"X-Request-Id"], b"x-request-id" in seen, b"traceparent" in seen) == (b"mine", False, True)


def test_ids_can_be_kept_back_from_a_server_that_traces(recording: Recording, modules: object) -> None:
    recorded = recording(forward_ids="off")
    assert headers_seen(recorded, application(endpoint="http://127.0.0.1:4318")) == {}
