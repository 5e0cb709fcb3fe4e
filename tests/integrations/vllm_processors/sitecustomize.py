"""Read by each Python of a vLLM that tests start: a tenth of its start is collecting what imports have made."""

import gc

gc.set_threshold(100_000, 50, 100)
