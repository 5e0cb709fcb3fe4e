"""The settings by topic; `inference_logging.config` puts them together and checks them."""
