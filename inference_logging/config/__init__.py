"""The configuration: what can be set, where a value comes from, and what is told of a wrong one.

Internal, with all modules of this folder: users import their names from ``inference_logging``.
"""

from inference_logging.config.config import ENV_PREFIX, FILE_VERSION, Config, FileConfig

__all__ = ["ENV_PREFIX", "FILE_VERSION", "Config", "FileConfig"]
