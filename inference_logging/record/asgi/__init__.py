"""The HTTP side: the ASGI middleware with its probes, and the small server of a side process's port.

Internal, with all modules of this folder: users import their names from ``inference_logging``.
"""
