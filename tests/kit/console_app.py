"""The program of the console's tests: a step for each line of standard input, with an answer on standard output."""

from __future__ import annotations

import json
import sys

from inference_logging import Config, Logger, get_logger
from inference_logging.record.health import Watch

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\r\x00 \u202egnp\u2066 \u200b \U000e0041 14:00:00.000 ERROR forged"

MESSAGE = f"{HOSTILE}\nsecond {HOSTILE}"


def main() -> None:
    """Take steps until the input ends."""
    config = Config()
    with Logger(config) as logger:
        numbered = logger.event("numbered", ["n", "text"])
        watch = Watch(config, logger.service)
        for line in map(str.strip, sys.stdin):
            step, _, count = line.partition(" ")
            if step == "emit":
                answer: object = sum(numbered(number, "x" * 200) for number in range(int(count)))
            elif step == "hostile":
                answer = hostile(logger)
            elif step == "fail":
                answer = fail()
            elif step == "flush":
                answer = logger.flush(60)
            elif step == "console":
                answer = [[sink["state"], sink["records_dropped"]] for sink in logger.service.sinks()][1]
            else:
                answer = watch.look().state
            sys.stdout.write(f"{json.dumps(answer)}\n")
            sys.stdout.flush()


def hostile(logger: Logger) -> bool:
    """Put what acts on a terminal into names, values, a message and a logger's name."""
    event = logger.event(HOSTILE, [HOSTILE, "nested"])
    log = get_logger(HOSTILE)
    return event(HOSTILE, [HOSTILE, {HOSTILE: HOSTILE}]) and log.warning(MESSAGE, text=HOSTILE)


def fail() -> bool:
    """Make a record of an exception."""
    try:
        raise ValueError("as asked for")
    except ValueError:
        return get_logger("app").exception("failed", user="Ada Lovelace")


if __name__ == "__main__":
    main()
