"""Sends a text back word by word: a record for each stream, with the times of its chunks and its tokens."""

import numpy as np
import triton_python_backend_utils as pb_utils

from inference_logging.triton import log_requests, usage


@log_requests
class TritonPythonModel:
    """Any number of outputs for one input."""

    def execute(self, requests):
        """Answer a batch; each request by its own response sender."""
        for request in requests:
            words = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0].decode().split()
            usage(request, input_tokens=len(words), output_tokens=len(words))
            sender = request.get_response_sender()
            for word in words:
                tensor = pb_utils.Tensor("WORD", np.array([word], dtype=object))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
