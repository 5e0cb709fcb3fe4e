"""Gives back what it got; the parameter ``do`` asks for other things."""

import json
import os
import signal
import time

import triton_python_backend_utils as pb_utils

from inference_logging import get_logger
from inference_logging.triton import log_requests, usage

log = get_logger("echo")


@log_requests
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        parameters = json.loads(request.parameters())
        todo = parameters.get("do")
        if todo == "raise":
            raise RuntimeError("as asked")
        if todo == "refuse":
            code = getattr(pb_utils.TritonError, parameters["code"])
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("as asked", code))
        if todo == "sleep":
            time.sleep(parameters["seconds"])
        if todo == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if todo == "log":
            log.info("here")
        if todo == "count":
            usage(request, input_tokens=3, output_tokens=7)
        (x,) = (tensor for tensor in request.inputs() if tensor.name() == "X")
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy())])
