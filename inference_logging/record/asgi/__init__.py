"""The HTTP side: the ASGI middleware with its probes, and the small server of a side process's port."""
