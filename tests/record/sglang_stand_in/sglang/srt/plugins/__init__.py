"""The functions of the group ``sglang.srt.plugins`` are called once, then their hooks are applied."""

from __future__ import annotations

import functools
import logging
import os
from importlib.metadata import entry_points

from sglang.srt.plugins.hook_registry import HookRegistry

_log = logging.getLogger(__name__)


@functools.cache
def load_plugins() -> None:
    """Call what SGLANG_PLUGINS allows, or all; an error of a plugin is logged."""
    allowed = {name.strip() for name in os.environ.get("SGLANG_PLUGINS", "").split(",") if name.strip()}
    for entry in entry_points(group="sglang.srt.plugins"):
        if allowed and entry.name not in allowed:
            continue
        try:
            entry.load()()
        except Exception:  # noqa: BLE001 - as SGLang does
            _log.exception("plugin %s", entry.name)
    HookRegistry.apply_hooks()
