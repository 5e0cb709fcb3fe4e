"""Hooks on functions: a target is replaced where it is defined, and in each module that has imported it by name."""

from __future__ import annotations

import functools
import pkgutil
import sys
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar


class HookType(Enum):
    """The one that the plugin asks for."""

    BEFORE = "before"


class HookRegistry:
    """What plugins have registered, by target."""

    hooks: ClassVar[dict[str, list[Callable[..., Any]]]] = {}

    @classmethod
    def register(cls, target: str, hook: Callable[..., Any], hook_type: HookType) -> None:
        """Note a hook."""
        assert hook_type is HookType.BEFORE
        cls.hooks.setdefault(target, []).append(hook)

    @classmethod
    def apply_hooks(cls) -> None:
        """Replace each target by one that calls the hooks before it."""
        for target, hooks in cls.hooks.items():
            _apply(target, hooks)


def _apply(target: str, hooks: list[Callable[..., Any]]) -> None:
    path, _, name = target.rpartition(".")
    original = getattr(pkgutil.resolve_name(path), name)
    wrapped = original
    for hook in hooks:
        wrapped = _before(wrapped, hook)
    for module in list(sys.modules.values()):
        for key, value in list(vars(module).items()):
            if value is original:
                setattr(module, key, wrapped)


def _before(original: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        changed = hook(*arguments, **options)
        if changed is not None:
            arguments, options = changed
        return original(*arguments, **options)

    return wrapper
