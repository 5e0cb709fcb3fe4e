"""The order of SGLang's start: plugins, arguments, the server."""

from __future__ import annotations

import argparse

from sglang.srt.plugins import load_plugins

if __name__ == "__main__":
    load_plugins()

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--tokenizer-worker-num", type=int, default=1)
    parser.add_argument("--enable-http2", action="store_true")
    parser.add_argument("--api-key")
    from sglang.srt.entrypoints.http_server import launch_server

    launch_server(parser.parse_args())
