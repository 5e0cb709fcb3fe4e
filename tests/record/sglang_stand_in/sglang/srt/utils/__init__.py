"""All of `common`, as SGLang's modules import it."""

from sglang.srt.utils.common import *  # noqa: F403
