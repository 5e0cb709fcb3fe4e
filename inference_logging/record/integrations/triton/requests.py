"""Triton's Python backend: a record for each request that a ``model.py`` serves.

``@log_requests`` on the class ``TritonPythonModel`` is all it takes; `RequestLog` is the same in explicit calls. Both
need Triton's ``triton_python_backend_utils``, which there is only in a stub process, from ``initialize`` on.

Written against Triton 2.51 (its Python backend of October 2024). A record begins when ``execute`` is called and ends
with the last response; the time of a request in Triton's own queues is not visible here. ``is_cancelled`` calls the
server, so this module never calls it: when the model does, the answer is noted.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from inference_logging._native import ModelLog, ModelRequest
from inference_logging.record.application import get_logger
from inference_logging.record.config import Config
from inference_logging.record.context import REQUEST
from inference_logging.record.integrations.triton.metrics import TritonMetrics
from inference_logging.record.integrations.triton.started import reported_by
from inference_logging.record.logger import Logger, open_tracebacks
from inference_logging.record.off import NoModelLog
from inference_logging.record.settings import settings
from inference_logging.record.started import record_start

Model = TypeVar("Model", bound=type)

MAX_PARAMETERS_CHARACTERS: Final = 768
"""Longest recorded parameters of a request, as JSON; the last ones are left out beyond that."""

RESCHEDULE: Final = 2
"""``TRITONSERVER_REQUEST_RELEASE_RESCHEDULE``: Triton gives the request back in a later batch."""
DEFAULT_CANDIDATES: Final = 1024
"""Sequences that Triton's scheduler ``oldest`` gives to an instance at a time, where the configuration has none."""

_KSERVE: Final = {
    **{f"TYPE_{kind}{bits}": (f"{kind}{bits}", bits // 8) for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)},
    **{f"TYPE_FP{bits}": (f"FP{bits}", bits // 8) for bits in (16, 32, 64)},
    "TYPE_BF16": ("BF16", 2),
    "TYPE_BOOL": ("BOOL", 1),
    "TYPE_STRING": ("BYTES", 0),
}
"""The types of a model's configuration: KServe's name, and the bytes of an element, 0 where they differ."""

_log = get_logger("inference_logging.triton")
_open: list[RequestLog] = []


class RequestLog:
    """The requests of one model instance: make it in ``initialize``, close it in ``finalize``.

    ``config`` defaults to the environment's. Raises ``ConfigError`` and ``OpenError``, with which Triton refuses the
    model. Nothing else raises: logging never refuses a request.
    """

    def __init__(self, args: Mapping[str, str], config: Config | None = None) -> None:
        """Open the queue; ``args`` is what Triton gives to ``initialize``."""
        import triton_python_backend_utils as pb_utils

        self.config = config if config is not None else Config()
        self._logger = Logger.shared(self.config)
        is_on = self.config.enabled == "on"
        self._native = self._model_log(args, pb_utils) if is_on else cast("ModelLog", NoModelLog())
        self.begin: Callable[[Sequence[Any]], list[ModelRequest | None]] = self._native.begin
        """Begin the records of a batch: call it first thing in ``execute``. Never raises.

        A request that has come back for another round keeps its record. One with which Triton only pads a batch of
        sequences has none.
        """
        self.end: Callable[[list[ModelRequest | None], Sequence[Any] | None], None] = self._native.end
        """Take note of what ``execute`` is about to return. Never raises.

        A response of None, or none at all of a decoupled model, leaves the record to the request's response sender.
        """
        self.serve: Callable[[Callable[[Any, Any], Any], object, Sequence[Any]], Any] = self._native.serve
        """Call ``execute(model, requests)`` with its requests on record: what ``log_requests`` does."""
        self._metrics: TritonMetrics | None = None
        if is_on and self.config.triton_metrics == "on":
            self._metrics = TritonMetrics(pb_utils, self._logger.service, args["model_instance_name"])
        self._failed = False
        if is_on:
            _watch(pb_utils.InferenceRequest)
            record_start(self._logger, reported_by(args, json.loads(args["model_config"])))
        _open.append(self)

    def _model_log(self, args: Mapping[str, str], pb_utils: Any) -> ModelLog:
        described = json.loads(args["model_config"])
        self._logger.service.set_producer_name(args["model_instance_name"])
        return ModelLog(
            self._logger.service,
            settings(self.config),
            classes=(pb_utils.InferenceRequest, pb_utils.InferenceResponse, pb_utils.Tensor),
            model=(args["model_name"], args["model_version"], args["model_instance_name"]),
            path=f"/v2/models/{args['model_name']}/versions/{args['model_version']}/infer",
            datatypes=_datatypes(described),
            only_input=_only_input(described),
            traces=server_traces(Path(f"/proc/{os.getppid()}/cmdline")),
            read_parameters=self._read_parameters,
            failed=self._report,
            raised=self.fail,
            returned=self._returned,
            ended=self._update_metrics,
            context=REQUEST,
            decoupled=bool(described.get("model_transaction_policy", {}).get("decoupled")),
            sequences=_sequences(described),
        )

    def fail(self, begun: list[ModelRequest | None], error: BaseException) -> None:
        """Note the exception that ``execute`` is about to raise; its record has the traceback. Never raises."""
        name, texts = type(error).__qualname__, self._logger.tracebacks.texts(error)
        for request in filter(None, begun):
            request.fail(name, texts)
        _log.error("execute raised", exc_info=error)

    def find(self, request: Any) -> ModelRequest | None:
        """Return the open record of one of Triton's requests; None once it has ended."""
        return self._native.find(request)

    def close(self) -> bool:
        """Drain within ``drain_deadline_s``; return whether everything was written. Idempotent.

        Triton unloads a model after its last answer, so a request that is still open is one that the model never ends
        (``response_incomplete``), or a rescheduled one whose client has cancelled it.
        """
        if self not in _open:
            return True
        self._native.close()
        _open.remove(self)
        return self._logger.release()

    def _returned(self, begun: list[ModelRequest | None], responses: Any) -> Any:
        """Take note of a result that is neither a list nor None, and return the result for Triton."""
        if type(responses) is types.CoroutineType:
            return _awaited(self, begun, responses)
        if not isinstance(responses, Sequence):
            responses = list(responses)  # as Triton does
        self.end(begun, responses)
        return responses

    def _update_metrics(self) -> None:
        if self._metrics is not None:
            try:
                self._metrics.update()
            except Exception as error:  # noqa: BLE001 - Triton is without our numbers, the model serves
                self._metrics = None
                self._report(error)

    def _read_parameters(self, text: str) -> tuple[str | None, str | None, str | None, list[tuple[str, str]]]:
        given = json.loads(text)
        kept = {name: given[name] for name in self.config.triton_parameters if name in given}
        while kept and len(json.dumps(kept)) > MAX_PARAMETERS_CHARACTERS:
            kept.popitem()
        trace = (given.get(name) for name in ("traceparent", "tracestate"))
        parent, state = (value if isinstance(value, str) else None for value in trace)
        texts = given.items() if self.config.record_headers else ()
        headers = [(name, value) for name, value in texts if isinstance(value, str)]
        return parent, state, json.dumps(kept) if kept else None, headers

    def _report(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            what = f"there are requests without a record: {type(error).__name__}: {error}"
            sys.stderr.write(f"inference_logging: {what}\n")
            _log.warning(what)


def log_requests(model: Model) -> Model:
    """Decorate a ``TritonPythonModel`` so that each request of its ``execute`` is recorded; the class stays the same.

    Its ``initialize`` opens the queue and its ``finalize`` drains it; neither needs to exist. Exceptions and error
    responses are recorded, and raised or returned unchanged. In a batch of one request, the model's own records
    (``get_logger``) carry its ids.
    """
    changed: Any = model
    changed.initialize = _initialize(getattr(model, "initialize", _nothing))
    changed.execute = _execute(changed.execute)
    changed.finalize = _finalize(getattr(model, "finalize", _nothing))
    return model


def _nothing(*_arguments: object) -> None:
    """Replace a method that the model does not have."""


def _initialize(initialize: Callable[[Any, dict[str, str]], None]) -> Callable[[Any, dict[str, str]], None]:
    @functools.wraps(initialize)
    def logged(self: Any, args: dict[str, str]) -> None:
        log = RequestLog(args)
        self._inference_logging = log
        try:
            initialize(self, args)
        except BaseException:
            log.close()
            raise

    return logged


def _execute(execute: Callable[[Any, list[Any]], Any]) -> Callable[[Any, list[Any]], Any]:
    @functools.wraps(execute)
    def logged(self: Any, requests: list[Any]) -> Any:
        return self._inference_logging.serve(execute, self, requests)

    return logged


def _finalize(finalize: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(finalize)
    def logged(self: Any) -> None:
        try:
            finalize(self)
        finally:
            self._inference_logging.close()

    return logged


async def _awaited(log: RequestLog, begun: list[ModelRequest | None], responses: Any) -> Any:
    if len(begun) == 1 and begun[0] is not None:
        REQUEST.set(begun[0].ids)  # the coroutine's own context
    try:
        returned = await responses
    except BaseException as error:
        log.fail(begun, error)
        raise
    log.end(begun, returned)
    return returned


class ResponseSender:
    """Triton's response sender, with a note of each response."""

    __slots__ = ("_request", "_sender")

    def __init__(self, sender: Any, request: ModelRequest) -> None:
        self._sender, self._request = sender, request
        request.sender_made()

    def __del__(self) -> None:
        """Without a sender and without Triton's request, the model cannot answer any more."""
        self._request.sender_gone()

    def send(self, response: Any = None, flags: int = 0) -> None:
        """Send ``response``, or with ``flags`` the end of them; as Triton's, which may raise."""
        # What cannot be looked at, Triton refuses with an error of its own.
        with contextlib.suppress(Exception):
            self._request.sending(response, flags)
        try:
            self._sender.send(response, flags)
        except BaseException as error:
            self._request.fail(type(error).__qualname__, open_tracebacks().texts(error))
            raise
        if flags:
            self._request.finish()

    def is_cancelled(self) -> bool:
        """Ask the server whether the client has given up."""
        cancelled: bool = self._sender.is_cancelled()
        if cancelled:
            self._request.cancelled()
        return cancelled

    def __getattr__(self, name: str) -> Any:
        """Return what a later Triton's sender has."""
        return getattr(self._sender, name)


def usage(request: Any, *, input_tokens: int | None = None, output_tokens: int | None = None) -> None:
    """Put the tokens of one of Triton's requests on its record: those read and those generated.

    A value that is not a number of tokens is reported in the log and left out.
    """
    begun = _find(request)
    if begun is None:
        return
    try:
        begun.usage(input_tokens=input_tokens, output_tokens=output_tokens)
    except (TypeError, OverflowError) as error:
        _log.warning(f"usage({input_tokens=!r}, {output_tokens=!r}): {error}")


def outgoing(request: Any, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return keywords that make a ``pb_utils.InferenceRequest`` a child of ``request``, in its trace.

    They are ``trace``, ``request_id`` and ``parameters``: the given ones plus ``traceparent`` and ``tracestate``.
    """
    begun = _find(request)
    traced = {} if begun is None else begun.ids.outgoing_headers()
    keywords = {"trace": request.trace(), "request_id": request.request_id()}
    if begun is not None or parameters:
        keywords["parameters"] = {**(parameters or {}), **traced}
    return keywords


def _find(request: Any) -> ModelRequest | None:
    return next(filter(None, (log.find(request) for log in _open)), None)


def _watch(kind: Any) -> None:
    """Make sure that senders, cancellations and rounds of ``kind`` (``InferenceRequest``) are noted; idempotent."""
    if hasattr(kind.get_response_sender, "__wrapped__"):
        return
    get_response_sender, is_cancelled = kind.get_response_sender, kind.is_cancelled

    def get_noted(self: Any) -> Any:
        sender, begun = get_response_sender(self), _find(self)
        return sender if begun is None else ResponseSender(sender, begun)

    def is_noted(self: Any) -> bool:
        cancelled: bool = is_cancelled(self)
        begun = _find(self) if cancelled else None
        if begun is not None:
            begun.cancelled()
        return cancelled

    get_noted.__wrapped__ = get_response_sender  # type: ignore[attr-defined]
    kind.get_response_sender, kind.is_cancelled = get_noted, is_noted
    set_release_flags = getattr(kind, "set_release_flags", None)
    if set_release_flags is None:  # before Triton's release 23.11
        return

    def set_noted(self: Any, flags: int) -> None:
        set_release_flags(self, flags)
        begun = _find(self)
        if begun is not None:
            begun.reschedule(bool(flags & RESCHEDULE))

    kind.set_release_flags = set_noted


def server_traces(command_line: Path) -> bool:
    """Return whether requests can have a trace context: asking each takes longer than its record.

    Triton's mode of tracing is an argument of the server; if it cannot be read, or the process is not a
    ``tritonserver``, requests may have one.
    """
    try:
        command = command_line.read_bytes()
    except OSError:
        return True
    return not command.partition(b"\0")[0].endswith(b"tritonserver") or b"opentelemetry" in command


def _datatypes(model_config: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    tensors = [*model_config.get("input", ()), *model_config.get("output", ())]
    return {tensor["name"]: _KSERVE[tensor["data_type"]] for tensor in tensors if tensor["data_type"] in _KSERVE}


def _only_input(model_config: Mapping[str, Any]) -> str | None:
    """Return the name of a request's tensor if it has just one, so that nobody asks for it; None: it may be another.

    Triton refuses a tensor that the configuration does not name; batchers may add some of their own.
    """
    inputs = model_config.get("input", ())
    adds = any(model_config.get(name) for name in ("sequence_batching", "batch_input"))
    return inputs[0]["name"] if len(inputs) == 1 and not adds else None


def _sequences(model_config: Mapping[str, Any]) -> int | None:
    """Return how many sequences an instance of the model serves at a time; None: it has no sequences."""
    sequences = model_config.get("sequence_batching")
    if sequences is None:
        return None
    oldest = sequences.get("oldest")
    if oldest is None:
        return max(1, int(model_config.get("max_batch_size") or 0))
    return int(oldest.get("max_candidate_sequences") or DEFAULT_CANDIDATES)
