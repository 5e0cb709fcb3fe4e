"""Sends a number in each round of a request, down to zero."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

from inference_logging.triton import log_requests


@log_requests
class TritonPythonModel:
    def initialize(self, args):
        self.left = {}

    def execute(self, requests):
        for request in requests:
            sequence = request.correlation_id()
            if not sequence:  # Triton pads a batch
                continue
            asked = int(request.inputs()[0].as_numpy().ravel()[0])
            self.left[sequence] = left = self.left.get(sequence, asked) - 1
            response = pb_utils.InferenceResponse([pb_utils.Tensor("LEFT", np.array([[left]], np.int32))])
            sender = request.get_response_sender()
            if json.loads(request.parameters()).get("do") == "forget":
                sender.send(response)
            elif left > 0:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                sender.send(response)
            else:
                sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
