"""Answers a request in its last round."""

import numpy as np
import triton_python_backend_utils as pb_utils

from inference_logging.triton import log_requests


@log_requests
class TritonPythonModel:
    def initialize(self, args):
        self.left = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        sequence = request.correlation_id()
        asked = int(request.inputs()[0].as_numpy().ravel()[0])
        self.left[sequence] = left = self.left.get(sequence, asked) - 1
        if sequence and left > 0:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        return pb_utils.InferenceResponse([pb_utils.Tensor("LEFT", np.array([[left]], np.int32))])
