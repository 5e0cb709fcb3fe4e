"""A configuration as the native core reads it: one JSON object of all parameters."""

from __future__ import annotations

import json
from typing import Any, Protocol

from inference_logging._native import Settings
from inference_logging.errors import ConfigError


class Values(Protocol):
    """The values of a configuration. `Config` has more, and is made with this module."""

    def model_dump(self, *, mode: str, exclude: set[str]) -> dict[str, Any]:
        """Return them in the form of JSON, all but those of ``exclude``."""


def as_json(config: Values, **resolved: Any) -> bytes:
    """Return the parameters of ``config``, with those that are ``resolved`` in place of its own."""
    return json.dumps(config.model_dump(mode="json", exclude={"config_file"}) | resolved).encode()


def settings(config: Values, **resolved: Any) -> Settings:
    """Return the native settings of ``config``.

    Raises ``ConfigError`` if ``config`` was changed into one that would have been refused.
    """
    try:
        return Settings(as_json(config, **resolved))
    except ValueError as error:
        raise ConfigError(str(error).splitlines()) from None
