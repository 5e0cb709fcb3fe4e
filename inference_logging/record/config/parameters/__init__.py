"""The settings by topic; `inference_logging.record.config` puts them together and checks them."""
