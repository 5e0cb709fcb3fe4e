"""Measures, inside of ``execute``, what one call of each way of logging takes, by turns; answers with each round.

They are: our two calls around a request, twice; reading the same fields of the request and its response without
recording them; Triton's logger; Python's logging into a file, and through a queue; each of the fields. In nanoseconds.
"""

import logging
import logging.handlers
import os
import queue
import random
import time
from functools import partial
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

from inference_logging.triton import RequestLog

ROUNDS, CALLS = 15, 400
TEXT = "x" * 300


def field_calls(request, response):
    """Return the calls that read what a record holds of a request and its response, as ``RequestLog`` makes them.

    The server makes no traces, and the model has one input, so nobody asks for a trace or for the input's name.
    """
    asks, answers, tensor = pb_utils.InferenceRequest, pb_utils.InferenceResponse, pb_utils.Tensor
    output = tensor("Y", np.zeros(4))
    return [
        *(partial(getattr(asks, name), request) for name in ("request_id", "correlation_id", "parameters", "inputs")),
        partial(tensor.shape, output),
        *(partial(getattr(answers, name), response) for name in ("has_error", "output_tensors")),
        *(partial(getattr(tensor, name), output) for name in ("name", "shape")),
    ]


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
        answers, fields = [response], field_calls(request, response)
        ways = (
            *[lambda: self.ours.end(self.ours.begin(one), answers)] * 2,
            lambda: [read() for read in fields],
            lambda: pb_utils.Logger.log_info(TEXT),
            lambda: self.file.info(TEXT),
            lambda: self.queue.info(TEXT),
            *fields,
        )
        found = np.empty((ROUNDS, len(ways)))
        for taken in found:
            for at in random.sample(range(len(ways)), len(ways)):
                way, begun = ways[at], time.perf_counter_ns()
                for _ in range(CALLS):
                    way()
                taken[at] = (time.perf_counter_ns() - begun) / CALLS
                time.sleep(0.02)  # for those that write later
        return pb_utils.InferenceResponse([pb_utils.Tensor("NANOSECONDS", found.reshape(-1))])

    def finalize(self):
        """Write what is left."""
        self.listener.stop()
        self.ours.close()
        for handler in (*self.file.handlers, *self.listener.handlers):
            handler.close()
