"""Application records: your own log lines in the same segments as the requests, with the ids of the request under way.

Run:  python main.py [DIRECTORY]      (default: ./logs)

Three ways in: `get_logger`, with fields; an existing standard-library logger, by its handler; an exception.
"""

import json
import logging
import sys
from pathlib import Path

from inference_logging import Config, Handler, Logger, get_logger

log = get_logger("engine")  # can be made before anything is open
legacy = logging.getLogger("tokenizer")


def serve() -> None:
    log.info("model loaded", model="tiny", seconds=2.5, layers=[12, 12], quantized=False)
    log.debug("below the configured level: not recorded")
    legacy.warning("vocabulary of %d words, padded", 32000, extra={"padded_to": 32768})
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        log.exception("scheduler step failed", step=7)


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "logs")
    logging.basicConfig(level=logging.INFO, handlers=[Handler()])
    with Logger(Config(directory=directory, service_name="records-example")):  # a server's middleware opens it for you
        serve()
    for line in (directory / "latest").read_text().splitlines():
        record = json.loads(line)
        if record["event_name"] == "log":
            print(record["severity_text"], record["logger"], record["message"], sorted(record.get("attributes", {})))


if __name__ == "__main__":
    main()
