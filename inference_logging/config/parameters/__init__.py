"""The settings by what they are about; `inference_logging.config` puts them together and checks them."""
