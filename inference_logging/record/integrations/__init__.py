"""One module or folder per foreign library.

Internal, with all modules of this folder: users import from ``inference_logging``, ``inference_logging.parsl`` and
``inference_logging.triton``.
"""
