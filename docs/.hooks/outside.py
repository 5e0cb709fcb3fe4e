"""Links to files outside of docs/ are shown as text: the site holds only pages."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)\s]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page's text without links that leave the folder."""
    return _OUTSIDE.sub(r"\1 (`\2` in the repository)", markdown)
