"""Look for servers in each Python process that `inference-logging run` starts: Python imports this file at its start.

Its folder is on PYTHONPATH, so it runs in every process of the command: also in those that serve nothing, and in a
Python that has not installed this package. Hence it needs nothing but the standard library, and does nothing before a
server's module is imported.
"""

from __future__ import annotations

import importlib
import importlib.abc
import os
import sys

TYPE_CHECKING = False  # typing takes time in each process
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

# Each module, once imported, is given to the function of the same key in `inference_logging.record.run.servers.FOUND`.
_MODULES = ("uvicorn.config", "hypercorn.app_wrappers", "granian.asgi", "gunicorn.workers.gasgi")


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, then hands it over."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> ModuleType | None:
        """Make the module."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code, then what waits for it."""
        self._loader.exec_module(module)
        _hand_over(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the other finders find, but only the modules of servers."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """Return what another finder finds, with a loader that hands it over."""
        if fullname not in _MODULES:
            return None
        for finder in [finder for finder in sys.meta_path if finder is not self]:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


def _hand_over(module: ModuleType) -> None:
    try:
        servers = importlib.import_module("inference_logging.record.run.servers")
        servers.FOUND[module.__name__](module)
    except Exception as error:  # noqa: BLE001 - the server starts whatever happens here
        sys.stderr.write(
            f"inference-logging run: requests of {module.__name__.partition('.')[0]} are not recorded: "
            f"{sys.executable} can't use the package: {type(error).__name__}: {error}\n"
        )


def _next_sitecustomize() -> None:
    """Import the one that this file hides, if there is one."""
    ours = sys.modules.get("sitecustomize")
    here = os.path.dirname(__file__)  # noqa: PTH120 - as PYTHONPATH has it, and without loading pathlib
    sys.path[:] = [path for path in sys.path if path != here]
    sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


sys.meta_path.insert(0, _Finder())
_next_sitecustomize()
