"""What a failed request is, for `stats`, `query` and ClickHouse: one that ended otherwise than well or by its client.

A 4xx has not failed, since its outcome is ``ok`` (408 is a ``timeout``). ``aborted`` has: the server gave it up.
"""

from __future__ import annotations

from typing import Final

NOT_FAILED: Final = ("ok", "client_disconnect")
FAILED: Final = f"outcome NOT IN {NOT_FAILED}"
"""As a condition of SQL."""
