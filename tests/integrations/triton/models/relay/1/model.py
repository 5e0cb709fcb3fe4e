"""Asks the model ``echo`` (BLS), with explicit calls instead of the decorator."""

import numpy as np
import triton_python_backend_utils as pb_utils

from inference_logging.triton import RequestLog, outgoing


class TritonPythonModel:
    def initialize(self, args):
        self.log = RequestLog(args)

    def execute(self, requests):
        begun = self.log.begin(requests)
        try:
            responses = [self.answer(request) for request in requests]
        except Exception as error:
            self.log.fail(begun, error)
            raise
        self.log.end(begun, responses)
        return responses

    def answer(self, request):
        x = request.inputs()[0].as_numpy()
        asked = pb_utils.InferenceRequest(
            model_name="echo",
            inputs=[pb_utils.Tensor("X", x.reshape((1, -1)))],
            requested_output_names=["Y"],
            **outgoing(request),
        )
        answered = asked.exec()
        if answered.has_error():
            return pb_utils.InferenceResponse(error=answered.error())
        y = pb_utils.get_output_tensor_by_name(answered, "Y").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.ravel(y))])

    def finalize(self):
        self.log.close()
