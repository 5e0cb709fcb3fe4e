"""A client over gRPC, run by the interpreter that has tritonclient: prints what it got as JSON.

python client.py PORT infer ID VALUE ...            one request to echo
python client.py PORT stream ID COUNT [GIVE_UP_AFTER] [PAUSE_MS] [ASKS]
one to stream, cancelled after so many responses
"""

import json
import os
import queue
import sys

import numpy as np
import tritonclient.grpc as triton


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
    n = triton.InferInput("N", [1], "INT32")
    n.set_data_from_numpy(np.array([count], dtype=np.int32))
    answers: queue.Queue[tuple[triton.InferResult, Exception | None]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        client.async_stream_infer(
            "stream",
            [n],
            request_id=name,
            parameters={"pause_ms": int(pause_ms), "asks": asks == "yes"},
            enable_empty_final_response=True,
        )
        words: list[str] = []
        while True:
            result, error = answers.get(timeout=120)
            if error is not None:
                return [*words, f"error: {error}"]
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                return words
            words.append(result.as_numpy("TOKEN")[0].decode())
            if len(words) == int(give_up_after):
                client.stop_stream(cancel_requests=True)
                return words
    finally:
        client.stop_stream(cancel_requests=True)


if __name__ == "__main__":
    port, what, *rest = sys.argv[1:]
    connected = triton.InferenceServerClient(f"127.0.0.1:{port}")
    sys.stdout.write(json.dumps({"infer": infer, "stream": stream}[what](connected, *rest)))
    sys.stdout.flush()
    os._exit(0)  # threads of gRPC's may keep it from ending
