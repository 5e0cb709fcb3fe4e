"""vLLM: its API server around the middleware, and what its engine and its scheduler tell."""
