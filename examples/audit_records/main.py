"""Audit records: a decision is on the device before its caller goes on, in a hash chain that shows who changed a line.

Run:  python main.py [DIRECTORY]      (default: ./logs)

In a server the middleware opens the logger, `audit: on` comes from the environment or the file, and a record that is
not committed is answered with 503.
"""

import asyncio
import sys
from pathlib import Path

from inference_logging import AuditError, Config, Logger, get_logger

log = get_logger("policy")


async def decide(user: str) -> str:
    try:
        await log.audit("policy.decision", user=user, policy="default", allowed=user != "mallory")
    except AuditError as error:
        return f"{user}: not served, since nobody could prove it: {error.reason}"
    return f"{user}: committed"


async def main(directory: Path) -> None:
    with Logger(Config(directory=directory, service_name="audit-example", audit="on")) as logger:
        # They wait together: one fsync serves them all.
        for answer in await asyncio.gather(*(decide(user) for user in ("alice", "bob", "mallory"))):
            print(answer)
        tokens = logger.event("billing.tokens", ["user", "tokens"], lane="audit")
        for count in (12, 30, 7):
            tokens("alice", count)  # not awaited: committed within audit_commit_interval_s
        await logger.committed()
    print((directory / "audit" / "latest").read_text().splitlines()[1])
    print(f"now: inference-logging verify {directory}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else "logs")))
