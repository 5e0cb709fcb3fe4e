"""The command `inference-logging`: one file per command, loaded only when it is called."""
