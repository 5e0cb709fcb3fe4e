"""Reads lines from a Unix socket, takes a time for each, and then writes it to a file: the slow sink of a benchmark.

It is a program of its own, since a thread of the measured process would take part in what is measured.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path


def main(path: str, output: str, delay_s: float) -> None:
    """Listen at ``path``, say so on standard output, and read one connection to its end."""
    with socket.socket(socket.AF_UNIX) as server, Path(output).open("wb", buffering=0) as written:
        server.bind(path)
        server.listen()
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    time.sleep(delay_s)
                    written.write(line)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
