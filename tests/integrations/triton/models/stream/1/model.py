"""Sends as many words as asked, each request in a thread, unless the client gives up or it is to fail."""

import json
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

from inference_logging.triton import log_requests

FINAL = pb_utils.__dict__.get("TRITONSERVER_RESPONSE_COMPLETE_FINAL", 1)


@log_requests
class TritonPythonModel:
    def initialize(self, args):
        self.threads = []

    def execute(self, requests):
        for request in requests:
            if json.loads(request.parameters()).get("do") == "raise":
                raise ValueError("as asked")
            thread = threading.Thread(target=self.answer, args=(request,))
            self.threads.append(thread)
            thread.start()

    def answer(self, request):
        parameters = json.loads(request.parameters())
        count, pause = int(request.inputs()[0].as_numpy()[0]), parameters.get("pause_ms", 0) / 1e3
        sender = request.get_response_sender()
        fails_after = parameters.get("fails_after", -1)
        for number in range(count):
            if number == fails_after:
                error = pb_utils.TritonError("as asked", pb_utils.TritonError.UNAVAILABLE)
                sender.send(pb_utils.InferenceResponse(error=error))
                break
            if parameters.get("asks", True) and sender.is_cancelled():
                break
            word = pb_utils.Tensor("TOKEN", np.array([f"word{number}"], dtype=object))
            sender.send(pb_utils.InferenceResponse([word]))
            time.sleep(pause)
        sender.send(flags=FINAL)

    def finalize(self):
        for thread in self.threads:
            thread.join()
