"""As much of Triton's `triton_python_backend_utils` as is looked at, in this process only, and no server behind it."""

from __future__ import annotations

import enum
import json
import sys
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

FINAL = 1
RESCHEDULE = 2
SEQUENCE_START = 1


class Code(enum.Enum):
    INVALID_ARG = 1
    CANCELLED = 2


class TritonError:
    def __init__(self, message: str, code: Code = Code.INVALID_ARG) -> None:
        self._message, self._code = message, code

    def code(self) -> Code:
        return self._code

    def message(self) -> str:
        return self._message


class Tensor:
    def __init__(self, name: str, array: Any) -> None:
        self._name, self._array = name, np.asarray(array)

    def name(self) -> str:
        return self._name

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def as_numpy(self) -> Any:
        return self._array


class InferenceResponse:
    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        self._tensors, self._error = list(output_tensors), error

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error

    def output_tensors(self) -> list[Tensor]:
        return self._tensors


class ResponseSender:
    def __init__(self) -> None:
        self.sent: list[InferenceResponse | None] = []
        self.closed = False
        self.cancelled = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if self.closed:
            raise RuntimeError("Unable to send response. Response sender has been closed.")
        self.sent.append(response)
        self.closed = bool(flags & FINAL)

    def is_cancelled(self) -> bool:
        return self.cancelled


class Trace:
    def __init__(self, context: str | None) -> None:
        self._context = context

    def get_context(self) -> str | None:
        return self._context


class InferenceRequest:
    def __init__(
        self,
        *inputs: Tensor,
        name: str = "",
        correlation: int | str = 0,
        context: str | None = None,
        flags: int = 0,
        **parameters: Any,
    ) -> None:
        self._inputs, self._name, self._correlation, self._context = list(inputs), name, correlation, context
        self._parameters, self._flags = json.dumps(parameters), flags
        self.sender = ResponseSender()
        self.release_flags = 1

    def request_id(self) -> str:
        return self._name

    def correlation_id(self) -> int | str:
        return self._correlation

    def flags(self) -> int:
        return self._flags

    def set_release_flags(self, flags: int) -> None:
        self.release_flags = flags

    def parameters(self) -> str:
        return self._parameters

    def trace(self) -> Trace:
        return Trace(self._context)

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def is_cancelled(self) -> bool:
        return self.sender.cancelled

    def get_response_sender(self) -> ResponseSender:
        return self.sender


class Metric:
    def __init__(self, labels: dict[str, str]) -> None:
        self.labels, self.value = labels, 0.0

    def increment(self, value: float) -> None:
        self.value += value

    def set(self, value: float) -> None:
        self.value = value


class MetricFamily:
    COUNTER, GAUGE = "counter", "gauge"
    made: dict[str, Metric]

    def __init__(self, name: str, description: str, kind: str) -> None:
        self._name = name

    def Metric(self, labels: dict[str, str]) -> Metric:  # noqa: N802 - Triton's name
        return self.made.setdefault(self._name, Metric(labels))


def arguments(*, decoupled: bool = False, name: str = "m", **configuration: Any) -> dict[str, str]:
    """Return what Triton gives to ``initialize``."""
    described = {
        **configuration,
        "name": name,
        "input": [{"name": "X", "data_type": "TYPE_FP32"}, {"name": "S", "data_type": "TYPE_STRING"}],
        "output": [{"name": "Y", "data_type": "TYPE_INT64"}],
        "model_transaction_policy": {"decoupled": decoupled},
    }
    return {
        "model_config": json.dumps(described),
        "model_name": name,
        "model_version": "3",
        "model_instance_name": f"{name}_0_0",
    }


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `import triton_python_backend_utils` find this, with classes that no other test has changed."""
    module = types.ModuleType("triton_python_backend_utils")
    request = type("InferenceRequest", (), dict(vars(InferenceRequest)))
    vars(module).update(InferenceRequest=request, InferenceResponse=InferenceResponse, Tensor=Tensor)
    family = type("MetricFamily", (MetricFamily,), {"made": {}})
    vars(module).update(TritonError=TritonError, MetricFamily=family)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def request(*inputs: Tensor, **given: Any) -> Any:
    """Return a request of the class that is installed."""
    return sys.modules["triton_python_backend_utils"].InferenceRequest(*inputs, **given)


def ok() -> InferenceResponse:
    """Return a response with one output."""
    return InferenceResponse([Tensor("Y", np.array([[1, 2]]))])


def stream(self: Any, requests: list[Any]) -> None:
    """Send three responses for each request, and then its end."""
    for one in requests:
        sender = one.get_response_sender()
        for _ in range(3):
            sender.send(ok())
        sender.send(flags=FINAL)
