"""Ours, without names, types, shapes and bytes of tensors."""

import os

import triton_python_backend_utils as pb_utils

from inference_logging.triton import log_requests

os.environ["INFERENCE_LOGGING_TRITON_TENSORS"] = "off"


@log_requests
class TritonPythonModel:
    """Gives back what it got."""

    def execute(self, requests):
        """Answer each request with what it sent."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Answer one request."""
        x = request.inputs()[0].as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
