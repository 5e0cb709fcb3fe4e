"""vLLM: its API server around the middleware, and the statistics of its engine and its scheduler."""
