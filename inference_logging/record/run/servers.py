"""How each server takes its application, and how the middleware gets around it.

There is one function for each server's module; `path/sitecustomize.py` calls it when that module was imported. What a
server's version lacks is an AttributeError here, which is reported there; the server then starts without the
middleware.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, Final

_DEEPEST: Final = 32
"""Most applications within each other that are looked at."""


def uvicorn(module: Any) -> None:
    """Wrap what `uvicorn.config.Config.load` loads: of the command, of `uvicorn.run`, of gunicorn's worker."""
    load = module.Config.load

    @functools.wraps(load)
    def load_wrapped(config: Any) -> None:
        load(config)
        outer = config.loaded_app
        # Inside of what replaces the client's address by the one that a proxy reports.
        if type(outer).__name__ == "ProxyHeadersMiddleware":
            outer.app = around(outer.app, "uvicorn")
        else:
            config.loaded_app = around(outer, "uvicorn")

    module.Config.load = load_wrapped


def hypercorn(module: Any) -> None:
    """Wrap each ASGI application that hypercorn serves, from its command or from `hypercorn.asyncio.serve`."""
    begin = module.ASGIWrapper.__init__

    @functools.wraps(begin)
    def begin_wrapped(wrapper: Any, app: Any) -> None:
        begin(wrapper, around(app, "hypercorn"))

    module.ASGIWrapper.__init__ = begin_wrapped


def granian(module: Any) -> None:
    """Wrap the application of granian's ASGI workers, for its lifespan and for its requests alike."""
    begin, serve = module.LifespanProtocol.__init__, module._callback_wrapper
    wrapped: dict[int, tuple[Any, Any]] = {}  # with the application, so that no other one gets its id

    def once(app: Any) -> Any:
        if id(app) not in wrapped:
            wrapped[id(app)] = app, around(app, "granian")
        return wrapped[id(app)][1]

    @functools.wraps(begin)
    def begin_wrapped(protocol: Any, app: Any, *rest: Any, **options: Any) -> None:
        begin(protocol, once(app), *rest, **options)

    @functools.wraps(serve)
    def serve_wrapped(app: Any, *rest: Any, **options: Any) -> Any:
        return serve(once(app), *rest, **options)

    module.LifespanProtocol.__init__ = begin_wrapped
    module._callback_wrapper = serve_wrapped


def gunicorn(module: Any) -> None:
    """Wrap the application of gunicorn's own ASGI worker (`-k asgi`), in each worker after its fork."""
    load = module.ASGIWorker.load_wsgi

    @functools.wraps(load)
    def load_wrapped(worker: Any) -> None:
        load(worker)
        worker.asgi = around(worker.asgi, "gunicorn")

    module.ASGIWorker.load_wsgi = load_wrapped


FOUND: Final[dict[str, Callable[[Any], None]]] = {
    "uvicorn.config": uvicorn,
    "hypercorn.app_wrappers": hypercorn,
    "granian.asgi": granian,
    "gunicorn.workers.gasgi": gunicorn,
}
"""By the module to wait for."""


def around(app: Any, server: str) -> Any:
    """Return the middleware around ``app``, or ``app`` if it has it already; report which, with the process."""
    from inference_logging.record.asgi.middleware import InferenceLoggingMiddleware

    name = f"{type(app).__module__}.{type(app).__qualname__}"
    if _has(app, InferenceLoggingMiddleware):
        _report(f"{server} serves {name}, which has the middleware already")
        return app
    _report(f"{server} serves {name}: its requests are recorded")
    return _below(getattr(app, "root_path", None), InferenceLoggingMiddleware(app))


def _below(root_path: Any, app: Any) -> Any:
    """Return ``app`` with the ``root_path`` that `FastAPI(root_path=…)` sets only within itself."""
    if not isinstance(root_path, str) or not root_path:
        return app

    def below(scope: Any, receive: Any, send: Any) -> Any:
        scope["root_path"] = root_path
        return app(scope, receive, send)

    return below


def _has(app: Any, middleware: type) -> bool:
    """Return whether ``app``, what it wraps, or the list of middlewares that it will make has ``middleware``."""
    for _ in range(_DEEPEST):
        if isinstance(app, middleware):
            return True
        listed = getattr(app, "user_middleware", ())
        if any(getattr(entry, "cls", None) is middleware for entry in listed):
            return True
        app = getattr(app, "app", None)
        if app is None:
            return False
    return False


def _report(text: str) -> None:
    sys.stderr.write(f"inference-logging run: pid {os.getpid()}: {text}\n")
    sys.stderr.flush()
