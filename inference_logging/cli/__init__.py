"""The command `inference-logging`: one file per command, loaded only when it is called.

Internal, with all modules of this folder: users import nothing from here.
"""
