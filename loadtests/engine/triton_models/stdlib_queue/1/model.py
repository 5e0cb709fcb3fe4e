"""Python's logging through a queue and a thread into a file."""

import logging
import logging.handlers
import os
import queue
from pathlib import Path

import triton_python_backend_utils as pb_utils

FILLER = "x" * 220


def text(request, x):
    """Return some 300 bytes about a request."""
    ids = f"request={request.request_id()} correlation={request.correlation_id()}"
    return f"{ids} shape={x.shape} bytes={x.nbytes} {FILLER}"


class TritonPythonModel:
    """Gives back what it got."""

    def initialize(self, args):
        """Open the file and start the thread."""
        self.log = logging.getLogger("bench")
        self.log.setLevel(logging.INFO)
        path = Path(os.environ["BENCH_DIRECTORY"]) / f"{args['model_instance_name']}.log"
        records = queue.SimpleQueue()
        self.log.addHandler(logging.handlers.QueueHandler(records))
        self.listener = logging.handlers.QueueListener(records, logging.FileHandler(path))
        self.listener.start()

    def finalize(self):
        """Write what is left."""
        self.listener.stop()

    def execute(self, requests):
        """Answer each request with what it sent."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Answer one request."""
        x = request.inputs()[0].as_numpy()
        self.log.info(text(request, x))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
