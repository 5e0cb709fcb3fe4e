"""SGLang's application with the middleware, as its worker processes load it (``--tokenizer-worker-num``)."""

from __future__ import annotations

from sglang.srt.entrypoints.http_server import app

from inference_logging.record.run.sglang.plugin import add_to

add_to(app)
