"""The folder that `inference-logging run` puts on PYTHONPATH: nothing else may stand in it."""
