"""A client over gRPC, run by the interpreter that has tritonclient: prints what it got as JSON.

python client.py PORT infer ID VALUE ...            one request to echo
python client.py PORT stream ID COUNT [GIVE_UP_AFTER] [PAUSE_MS] [ASKS]
one to stream, cancelled after so many responses
python client.py PORT timed ID COUNT GIVE_UP_AFTER PAUSE_MS FAILS_AFTER
the same; seconds since it was asked beside each response, the end last
python client.py PORT over-http                     requests of all kinds, by name; each answer as it came
python client.py PORT over-grpc                     the same over gRPC, and streams
"""

import hashlib
import json
import os
import queue
import sys
import time
from collections.abc import Callable

import numpy as np
import tritonclient.grpc as triton
import tritonclient.http
from tritonclient.utils import InferenceServerException

LARGE = np.arange(1 << 20, dtype=np.float32).reshape(4, -1)
SMALL = LARGE[:1, :3]


def infer(client: triton.InferenceServerClient, name: str, *values: str) -> list[float]:
    x = triton.InferInput("X", [1, len(values)], "FP32")
    x.set_data_from_numpy(np.array([values], dtype=np.float32))
    answer = client.infer("echo", [x], request_id=name)
    return [float(value) for value in answer.as_numpy("Y")[0]]


def stream(
    client: triton.InferenceServerClient,
    name: str,
    count: str,
    give_up_after: str = "0",
    pause_ms: str = "0",
    asks: str = "yes",
) -> list[str]:
    parameters = {"pause_ms": int(pause_ms), "asks": asks == "yes"}
    return [word for _, word in responses(client, name, count, int(give_up_after), parameters) if word]


def timed(
    client: triton.InferenceServerClient, name: str, count: str, give_up_after: str, pause_ms: str, fails_after: str
) -> list[tuple[float, str]]:
    parameters = {"pause_ms": int(pause_ms), "fails_after": int(fails_after)}
    began = time.monotonic()
    seen = responses(client, name, count, int(give_up_after), parameters)
    return [(at - began, word) for at, word in seen]


def responses(
    client: triton.InferenceServerClient, name: str, count: str, give_up_after: int, parameters: dict[str, object]
) -> list[tuple[float, str]]:
    n = triton.InferInput("N", [1], "INT32")
    n.set_data_from_numpy(np.array([count], dtype=np.int32))
    answers: queue.Queue[tuple[float, triton.InferResult, Exception | None]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((time.monotonic(), result, error)))
    try:
        client.async_stream_infer(
            "stream", [n], request_id=name, parameters=parameters, enable_empty_final_response=True
        )
        words: list[tuple[float, str]] = []
        while True:
            at, result, error = answers.get(timeout=120)
            if error is not None:
                return [*words, (at, f"error: {error}")]
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                return [*words, (at, "")]
            words.append((at, result.as_numpy("TOKEN")[0].decode()))
            if len(words) == give_up_after:
                client.stop_stream(cancel_requests=True)
                return words
    finally:
        client.stop_stream(cancel_requests=True)


def answered(call: Callable[[], object]) -> object:
    """Return what came of a call, with the status if it failed."""
    try:
        return call()
    except InferenceServerException as error:
        return [error.status(), error.message()]


def over_http(port: str) -> dict[str, object]:
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}")

    def ask(name: str, values: np.ndarray, model: str = "scale", binary: bool = True, **options: object) -> object:
        x = tritonclient.http.InferInput("X", list(values.shape), "FP32")
        x.set_data_from_numpy(values, binary_data=binary)
        y = tritonclient.http.InferRequestedOutput("Y", binary_data=binary)
        answer = client.infer(model, [x], outputs=[y], request_id=name, **options)
        assert np.array_equal(answer.as_numpy("Y"), values * 2)
        return [answer.get_response(), hashlib.sha256(answer.as_numpy("Y").tobytes()).hexdigest()]

    gzip = {"request_compression_algorithm": "gzip", "response_compression_algorithm": "gzip"}
    return {
        "small": ask("small", SMALL),
        "text": ask("text", SMALL, binary=False),
        "large": ask("large", LARGE),
        "gzip": ask("gzip", SMALL, **gzip),
        "unknown": answered(lambda: ask("unknown", SMALL, "nobody")),
        "metadata": client.get_model_metadata("scale"),
    }


def over_grpc(client: triton.InferenceServerClient) -> dict[str, object]:
    def ask(name: str, values: np.ndarray, model: str = "scale", **options: object) -> object:
        x = triton.InferInput("X", values.shape, "FP32")
        x.set_data_from_numpy(values)
        answer = client.infer(model, [x], request_id=name, **options)
        assert np.array_equal(answer.as_numpy("Y"), values * 2)
        return hashlib.sha256(answer.get_response().SerializeToString(deterministic=True)).hexdigest()

    def stream(name: str, text: str, model: str = "words") -> list[str | None]:
        answers: queue.Queue[tuple[triton.InferResult, Exception | None]] = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        try:
            given = triton.InferInput("TEXT", [1], "BYTES")
            given.set_data_from_numpy(np.array([text], dtype=np.object_))
            client.async_stream_infer(model, [given], request_id=name, enable_empty_final_response=True)
            seen: list[str | None] = []
            while True:
                result, error = answers.get(timeout=120)
                if error is not None:
                    return [*seen, error.status(), error.message()]
                seen.append(result.get_response().SerializeToString(deterministic=True).hex())
                if result.get_response().parameters["triton_final_response"].bool_param:
                    return seen
        finally:
            client.stop_stream()

    return {
        "small": ask("small", SMALL),
        "large": ask("large", LARGE),
        "gzip": ask("gzip", SMALL, compression_algorithm="gzip"),
        "unknown": answered(lambda: ask("unknown", SMALL, "nobody")),
        "not one answer": answered(lambda: ask("not one answer", SMALL, "words")),
        "stream": stream("stream", "one two three"),
        "unknown in a stream": stream("stream", "one", "nobody"),
    }


if __name__ == "__main__":
    port, what, *rest = sys.argv[1:]
    if what == "over-http":
        answers = over_http(port)
    else:
        connected = triton.InferenceServerClient(f"127.0.0.1:{port}")
        answers = {"infer": infer, "stream": stream, "timed": timed, "over-grpc": over_grpc}[what](connected, *rest)
    sys.stdout.write(json.dumps(answers))
    sys.stdout.flush()
    os._exit(0)  # threads of gRPC's may keep it from ending
