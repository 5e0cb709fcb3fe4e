"""GuideLLM's trace of the kind ``mooncake``: seconds, ids that are not negative, and ``duration``.

Its reader refuses a row unless there is one id for each block of ``hash_id_block_size`` tokens, the last one counted
(guidellm/data/deserializers/trace_mooncake.py), and takes columns from the first rows.
"""

from __future__ import annotations

from inference_logging.read.export import vllm_timed


class Writer(vllm_timed.Writer):
    """Writes the trace, which differs from vLLM's in the size of blocks only."""
