"""Doubles what it gets: a record for each request of a batch."""

import triton_python_backend_utils as pb_utils

from inference_logging.triton import log_requests


@log_requests
class TritonPythonModel:
    """One output for one input."""

    def execute(self, requests):
        """Answer a batch."""
        tensors = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * tensor)]) for tensor in tensors]
