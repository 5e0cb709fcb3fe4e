"""Measures, inside of ``execute``, what one call of each way of logging takes, by turns; answers with the medians.

They are: our two calls around a request; reading the same fields of the request and its response without recording
them; Triton's logger; Python's logging into a file, and through a queue. In nanoseconds.
"""

import logging
import logging.handlers
import os
import queue
import time
from pathlib import Path
from statistics import median

import numpy as np
import triton_python_backend_utils as pb_utils

from inference_logging.triton import RequestLog

ROUNDS, CALLS = 15, 400
TEXT = "x" * 300


def read_fields(request, response):
    """Read what a record holds of a request and its response."""
    request.request_id()
    request.correlation_id()
    request.parameters()
    request.trace().get_context()
    for tensor in request.inputs():
        tensor.name()
        tensor.shape()
    response.has_error()
    for tensor in response.output_tensors():
        tensor.name()
        tensor.shape()


def logger(handler):
    """Return a logger with one handler."""
    log = logging.getLogger(f"bench.{type(handler).__name__}")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    return log


class TritonPythonModel:
    """Answers with what it has measured."""

    def initialize(self, args):
        """Open everything."""
        self.ours = RequestLog(args)
        directory = Path(os.environ["BENCH_DIRECTORY"])
        self.file = logger(logging.FileHandler(directory / "cost-file.log"))
        records = queue.SimpleQueue()
        self.queue = logger(logging.handlers.QueueHandler(records))
        handler = logging.FileHandler(directory / "cost-queue.log")
        self.listener = logging.handlers.QueueListener(records, handler)
        self.listener.start()

    def execute(self, requests):
        """Measure once for each request."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Measure."""
        one = [request]
        response = pb_utils.InferenceResponse([pb_utils.Tensor("NANOSECONDS", np.zeros(5))])
        answers = [response]
        ways = (
            lambda: self.ours.end(self.ours.begin(one), answers),
            lambda: read_fields(request, response),
            lambda: pb_utils.Logger.log_info(TEXT),
            lambda: self.file.info(TEXT),
            lambda: self.queue.info(TEXT),
        )
        taken = [[] for _ in ways]
        for _ in range(ROUNDS):
            for way, found in zip(ways, taken, strict=True):
                begun = time.perf_counter_ns()
                for _ in range(CALLS):
                    way()
                found.append((time.perf_counter_ns() - begun) / CALLS)
                time.sleep(0.05)  # for those that write later
        found = np.array([median(one) for one in taken])
        return pb_utils.InferenceResponse([pb_utils.Tensor("NANOSECONDS", found)])

    def finalize(self):
        """Write what is left."""
        self.listener.stop()
        self.ours.close()
        for handler in (*self.file.handlers, *self.listener.handlers):
            handler.close()
