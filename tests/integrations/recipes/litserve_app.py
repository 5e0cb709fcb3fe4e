"""LitServe: two endpoints that answer with the words of a text, at once and as a stream; the port is the argument."""

from __future__ import annotations

import sys

import litserve


class Whole(litserve.LitAPI):
    def setup(self, device):
        pass

    def decode_request(self, request):
        return request["text"]

    def predict(self, text):
        return text.upper()

    def encode_response(self, output):
        return {"text": output}


class Words(Whole):
    def predict(self, text):
        yield from text.upper().split()

    def encode_response(self, output):
        for word in output:
            yield f"data: {word}\n\n"


if __name__ == "__main__":
    apis = [Whole(api_path="/whole"), Words(api_path="/stream", stream=True)]
    litserve.LitServer(apis, accelerator="cpu").run(port=int(sys.argv[1]), generate_client_file=False)
