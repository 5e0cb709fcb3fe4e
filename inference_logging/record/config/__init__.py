"""The configuration: its parameters, the sources of their values, and the sentences about wrong ones."""

from inference_logging.record.config.config import ENV_PREFIX, FILE_VERSION, Config, FileConfig

__all__ = ["ENV_PREFIX", "FILE_VERSION", "Config", "FileConfig"]
