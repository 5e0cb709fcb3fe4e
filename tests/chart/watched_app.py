"""The example with an engine behind it, a route that fails and one that makes audit records."""

from __future__ import annotations

from app import app, log
from tests.chart.watched_engine import add_engine

__all__ = ["app"]


@app.post("/v1/responses")
async def fail() -> None:
    """Fail, as an engine that is out of memory."""
    raise MemoryError("as asked for")


@app.post("/audited")
async def audited() -> None:
    """Make an audit record."""
    await log.audit("policy.decision", user="u")


add_engine(app)
