"""The plugin that SGLang calls in each of its processes: the entry point of the group ``sglang.srt.plugins``.

It does nothing unless the environment says where records go: an installed package alone asks for no records. SGLang has
no flag for middlewares, but lets plugins hook its functions. The hook is on the last one that it calls before it
serves. By then it has added its own check of API keys, so this middleware is outside of it, and 401 is recorded too.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from typing import Any, Final

from inference_logging.record.asgi.middleware import InferenceLoggingMiddleware

VARIABLES: Final = ("INFERENCE_LOGGING_DIRECTORY", "INFERENCE_LOGGING_CONFIG_FILE")
"""Each alone asks for records."""
SERVER: Final = "sglang.srt.entrypoints.http_server"
APP_PATH: Final = "SGLANG_HTTP_SERVER_APP_PATH"
"""What worker processes load, which call no plugin."""
_MODULE: Final = "sglang.srt.utils.common"
_LAST: Final = "set_uvicorn_logging_configs"
_TRUE: Final = frozenset({"true", "1", "yes", "y"})


def register() -> None:
    """Let SGLang's HTTP server record its requests, where the environment asks for it; idempotent."""
    if not any(os.environ.get(name) for name in VARIABLES):
        return
    if os.environ.get("SGLANG_RUST_SERVER", "").lower() in _TRUE:
        _report("SGLANG_RUST_SERVER: HTTP is served by Rust, without any middleware, so there are no request records")
        return
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    if not hasattr(importlib.import_module(_MODULE), _LAST):
        _report(f"this SGLang has no {_MODULE}.{_LAST}, so its requests are not recorded")
        return
    hooks.HookRegistry.register(f"{_MODULE}.{_LAST}", _before_serving, hooks.HookType.BEFORE)


def add_to(app: Any) -> None:
    """Put the middleware around SGLang's application, unless it has it."""
    if not any(entry.cls is InferenceLoggingMiddleware for entry in app.user_middleware):
        app.add_middleware(InferenceLoggingMiddleware)


def _before_serving(*_arguments: object, **_options: object) -> None:
    add_to(importlib.import_module(SERVER).app)
    if os.environ.get(APP_PATH, f"{SERVER}:app") == f"{SERVER}:app":
        os.environ[APP_PATH] = "inference_logging.record.run.sglang.app:app"


def _report(text: str) -> None:
    # SGLang's other processes load plugins, too.
    if multiprocessing.parent_process() is None:
        sys.stderr.write(f"inference_logging: {text}\n")
