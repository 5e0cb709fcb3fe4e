"""Sends words from a coroutine."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils

from inference_logging import get_logger
from inference_logging.triton import log_requests

log = get_logger("drowsy")


@log_requests
class TritonPythonModel:
    async def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(request.inputs()[0].as_numpy()[0])):
                await asyncio.sleep(0.001)
                log.info("word")
                word = pb_utils.Tensor("TOKEN", np.array([f"word{number}"], dtype=object))
                sender.send(pb_utils.InferenceResponse([word]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
