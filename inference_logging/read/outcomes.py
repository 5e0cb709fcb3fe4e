"""What a failed request is, for all readers and ClickHouse: one that ended otherwise than well or by its client.

A 4xx has not failed, since its outcome is ``ok`` (408 is a ``timeout``). ``aborted`` has: the server gave it up.
A request without an outcome, which another program can have written, has not: nothing says that it has.
"""

from __future__ import annotations

from typing import Final

NOT_FAILED: Final = ("ok", "client_disconnect")
FAILED: Final = f"outcome NOT IN {NOT_FAILED}"
"""As a condition of SQL: NULL without an outcome."""
NONE: Final = "(none)"
"""How answers, pages and dashboards name the requests that have no value: no route, no model, no outcome."""
