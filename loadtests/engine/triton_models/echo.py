"""A model for each way of logging, which gives back what it got; the folder that it is copied to names the way."""

import logging
import logging.handlers
import os
import queue
from pathlib import Path

import triton_python_backend_utils as pb_utils

from inference_logging.triton import log_requests

WAY = Path(__file__).parents[1].name
FILLER = "x" * 220
if WAY == "ours_without_tensors":
    os.environ["INFERENCE_LOGGING_TRITON_TENSORS"] = "off"


def text(request, x):
    """Return some 300 bytes about a request."""
    ids = f"request={request.request_id()} correlation={request.correlation_id()}"
    return f"{ids} shape={x.shape} bytes={x.nbytes} {FILLER}"


class TritonPythonModel:
    """Gives back what it got."""

    log = file = listener = None

    def initialize(self, args):
        """Open what this way writes to."""
        if WAY == "triton_logger":
            self.log = pb_utils.Logger.log_info
        elif WAY.startswith("stdlib"):
            path = Path(os.environ["BENCH_DIRECTORY"]) / f"{args['model_instance_name']}.log"
            handler = self.file = logging.FileHandler(path)
            if WAY == "stdlib_queue":
                records = queue.SimpleQueue()
                self.listener = logging.handlers.QueueListener(records, handler)
                self.listener.start()
                handler = logging.handlers.QueueHandler(records)
            log = logging.getLogger(f"bench.{WAY}")
            log.setLevel(logging.INFO)
            log.addHandler(handler)
            self.log = log.info

    def finalize(self):
        """Write what is left."""
        if self.listener is not None:
            self.listener.stop()
        if self.file is not None:
            self.file.close()

    def execute(self, requests):
        """Answer each request with what it sent."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Answer one request."""
        x = request.inputs()[0].as_numpy()
        if self.log is not None:
            self.log(text(request, x))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])


if WAY.startswith("ours"):
    TritonPythonModel = log_requests(TritonPythonModel)
