"""Put the middleware around the application of a server that is started by `inference-logging run`."""
