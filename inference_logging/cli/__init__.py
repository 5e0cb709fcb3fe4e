"""The command `inference-logging`: one file per command, which is loaded only when the command is called.

Internal, with all modules of this folder: users import nothing from here.
"""
