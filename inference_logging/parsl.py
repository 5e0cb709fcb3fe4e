"""What a program that uses Parsl imports: ``from inference_logging.parsl import ParslLogging``."""

from inference_logging.record.integrations.parsl import ParslLogging

__all__ = ["ParslLogging"]
