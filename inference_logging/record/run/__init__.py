"""Put the middleware around the application of a server that is started by `inference-logging run`.

Internal, with all modules of this folder: users import nothing from here.
"""
