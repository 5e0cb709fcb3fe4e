"""What a program imports for Prometheus: ``from inference_logging.metrics import register_metrics``."""

from inference_logging.record.metrics import InferenceLoggingCollector, metrics_of, register_metrics

__all__ = ["InferenceLoggingCollector", "metrics_of", "register_metrics"]
