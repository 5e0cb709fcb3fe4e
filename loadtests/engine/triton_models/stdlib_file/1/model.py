"""Python's logging into a file, flushed at each record."""

import logging
import os
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
        """Open the file."""
        self.log = logging.getLogger("bench")
        self.log.setLevel(logging.INFO)
        path = Path(os.environ["BENCH_DIRECTORY"]) / f"{args['model_instance_name']}.log"
        self.log.addHandler(logging.FileHandler(path))

    def execute(self, requests):
        """Answer each request with what it sent."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Answer one request."""
        x = request.inputs()[0].as_numpy()
        self.log.info(text(request, x))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
