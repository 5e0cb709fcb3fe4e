"""The configuration: its parameters, the sources of their values, and the sentences about wrong ones.

Internal, with all modules of this folder: users import their names from ``inference_logging``.
"""

from inference_logging.record.config.config import ENV_PREFIX, FILE_VERSION, Config, FileConfig

__all__ = ["ENV_PREFIX", "FILE_VERSION", "Config", "FileConfig"]
