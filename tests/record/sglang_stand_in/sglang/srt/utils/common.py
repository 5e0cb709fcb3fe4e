"""The function that SGLang calls between its application's last middleware and its server."""

from __future__ import annotations


def set_uvicorn_logging_configs(server_args: object = None) -> None:
    """Change uvicorn's log in SGLang; nothing here."""
