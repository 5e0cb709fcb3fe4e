"""`inference-logging run`: starts a server and records the requests of the ASGI application that it serves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import click

from inference_logging.cli.main import USAGE
from inference_logging.cli.options import CONFIG, SERVICE_NAME, configuration, examples

_FOLDER: Final = Path(__file__).parent.parent / "record" / "run" / "path"
"""What Python imports `sitecustomize` from, in each process of the command."""


class NoCommandError(click.ClickException):
    """A program that can't be started."""

    exit_code = USAGE


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "inference-logging run -- uvicorn app:app --workers 4",
        "inference-logging run --directory /var/log/inference -- python -m sglang.launch_server --model MODEL",
        "inference-logging run --config logging.yaml -- gunicorn -k uvicorn.workers.UvicornWorker app:app",
    ),
)
@CONFIG
@SERVICE_NAME
@click.option("--directory", type=click.Path(path_type=Path), help="Where segments go, as directory.")
@click.argument("arguments", metavar="-- COMMAND [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    config_file: Path | None, service_name: str | None, directory: Path | None, arguments: tuple[str, ...]
) -> None:
    """Start COMMAND with the middleware around the ASGI application that it serves, without changing its code.

    The application is found when uvicorn, hypercorn, granian or gunicorn's worker `asgi` (or uvicorn's for gunicorn)
    loads it, in the process itself or its workers. Each serving process reports on stderr what it found. An application
    that has the middleware keeps its own. A server without ASGI runs unrecorded: use `inference-logging proxy` for it.

    The package must be installed in the Python that COMMAND runs. Python's options -I, -E and -S leave the middleware
    out.

    Exit code: that of COMMAND; 2 if it can't be started or the configuration is wrong.
    """
    given = {"config_file": config_file, "service_name": service_name, "directory": directory}
    configuration(**given)  # a mistake is reported here, before the server's own start
    environment = {
        f"INFERENCE_LOGGING_{name.upper()}": str(value) for name, value in given.items() if value is not None
    }
    before = os.environ.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_FOLDER), before)))
    if shutil.which(arguments[0]) is None:
        raise NoCommandError(f"COMMAND={arguments[0]!r}: there is no such program")
    try:
        os.execvpe(arguments[0], arguments, {**os.environ, **environment})
    except OSError as error:
        raise NoCommandError(f"COMMAND={arguments[0]!r}: {error.strerror}") from None
