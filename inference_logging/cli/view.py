"""`inference-logging view`: a page over folders of segments, live or sealed, in the browser of this machine."""

from __future__ import annotations

import atexit
import contextlib
import errno
import getpass
import html
import os
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from inference_logging.cli.main import INTERRUPTED
from inference_logging.cli.options import CONFIG, PREFIX, SEGMENTS, SERVICE_NAME, Place, brought, chosen, examples
from inference_logging.errors import MissingExtraError

if TYPE_CHECKING:
    from inference_logging.read.view.links import Link

_REDIRECTS_S: Final = 60.0
"""How long a browser may take to start."""
_PORTS: Final = 20
"""Ports that are tried, from the given one on."""


def _links(_context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> tuple[Link, ...]:
    """Read the values of --trace-url; a wrong one is a usage error."""
    from inference_logging.read.view.links import parse_link

    try:
        return tuple(parse_link(text) for text in given)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None


@click.command(
    "view",
    epilog=examples(
        "inference-logging view",
        "inference-logging view logs --port 8090 --no-browser",
        "inference-logging view logs-before logs-after",
        "inference-logging view --trace-url 'Jaeger=https://jaeger.example.com/trace/{trace_id}'",
    ),
)
@click.argument("directories", nargs=-1, metavar="[DIR]...", type=SEGMENTS)
@CONFIG
@SERVICE_NAME
@PREFIX
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address; others are refused.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port, or the next free one; 0: a free port.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address, as without a terminal.")
@click.option(
    "--cache-directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the table is kept. Default: inference-logging in XDG_CACHE_HOME, else in ~/.cache.",
)
@click.option(
    "--trace-url", "links", multiple=True, metavar="NAME=URL", callback=_links,
    help="Link from a trace to another page, an address with {trace_id} in it; repeatable.",
)  # fmt: skip
def command(
    directories: tuple[Path | str, ...],
    config_file: Path | None,
    service_name: str | None,
    prefixes: Sequence[str] | None,
    host: str,
    port: int,
    no_browser: bool,
    cache_directory: Path | None,
    links: tuple[Link, ...],
) -> int:
    """Open a page with the requests of each DIR (default: the configured one), live, until Ctrl-C.

    The page has a list with filters, each request's timeline, plots over time, a comparison, and the state of the
    logging. It reads the segments, changes nothing, and shows no more than they have. A table of them is made in the
    background and kept in the cache directory. Needs DuckDB (extra `view`).

    DIR can be s3://bucket/prefix (extra `s3`), with ?service=, date=, hour= and pod= to choose objects. It shows what
    was there at the start.

    Only this machine can open the page, by the printed address, whose random part is new with each start. From another
    machine, forward the port with the printed ssh -L.
    """
    given, services = chosen(directories, prefixes, config_file, service_name)
    return _serve(_directories(given), services, host, port, cache_directory, links, config_file, opens=not no_browser)


def _directories(given: Sequence[Path | str]) -> tuple[Path, ...]:
    """Return each directory once; one that does not exist yet is waited for. A file is a usage error.

    Of a bucket it is a folder with its objects.
    """
    found: dict[Path, Path] = {}
    for place in given:
        path = brought(place) if isinstance(place, str) else place
        if isinstance(place, str) and Place(path, None).tables():
            raise click.UsageError(f"{place}: has Parquet files, which only query reads")
        if path.exists() and not path.is_dir():
            raise click.UsageError(f"{path}: not a directory; view reads directories of segments")
        found.setdefault(path.resolve(), path)
    return tuple(found.values())


def _serve(
    directories: tuple[Path, ...],
    prefixes: tuple[str, ...] | None,
    host: str,
    port: int,
    cache_directory: Path | None,
    links: tuple[Link, ...],
    config_file: Path | None,
    *,
    opens: bool,
) -> int:
    try:
        from inference_logging.read.table.table import Table
        from inference_logging.read.view.app import Content, View
        from inference_logging.read.view.server import HostError, Serving, loopback
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn", "h11"):
            raise
        raise MissingExtraError("view", error.name.partition(".")[0], "view") from None

    try:
        address = loopback(host)
    except HostError as error:
        raise click.BadParameter(str(error), param_hint="--host") from None
    index = Table(directories, prefixes, cache_directory)
    listening = _listening(address, port)
    view = View(index, Content(directories, prefixes, links, config_file))
    serving = Serving(view, listening)
    for directory in directories:
        if not directory.is_dir():
            click.echo(f"inference-logging view: waits for {directory}, which does not exist yet", err=True)

    def started() -> None:
        click.echo(f"{serving.url} (elsewhere: ssh -L {_forwarded(serving.host, serving.port)}); Ctrl-C ends it")
        sys.stdout.flush()
        if opens:
            _open(serving.url)

    has_ended = serving.run(started)
    if not has_ended:
        # A thread still searches. It only reads, and index files appear whole: nothing is lost.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)
    return INTERRUPTED


def _listening(address: str, port: int) -> socket.socket:
    """Listen on this port, or on the next free one. Raises ``OSError`` with a sentence."""
    from inference_logging.read.view.server import bind

    for tried in range(port, min(port + _PORTS, 1 << 16)):
        try:
            listening = bind(address, tried)
        except OSError as error:
            is_taken = isinstance(cause := error.__context__, OSError) and cause.errno == errno.EADDRINUSE
            if not is_taken:
                raise
            continue
        if tried != port:
            click.echo(f"inference-logging view: port {port} is taken; it listens on {tried}", err=True)
        return listening
    raise OSError(f"port={port}: other programs use it and the next ports; omit --port to take a free one")


def _forwarded(host: str, port: int) -> str:
    """Return what follows `ssh -L` on another machine: the same port, since the page checks its own name."""
    name = f"[{host}]" if ":" in host else host
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "USER"  # an id without a name, as in containers
    return f"{port}:{name}:{port} {user}@{socket.gethostname()}"


def _open(url: str) -> None:
    """Open the page in a browser with windows, if a person is at a terminal: one of text would take the terminal."""
    has_windows = sys.platform != "linux" or any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")))
    if has_windows and sys.stdout.isatty():
        threading.Thread(target=_open_now, args=(url,), daemon=True).start()


def _open_now(url: str) -> None:
    with contextlib.suppress(Exception), _redirecting(url) as page:
        webbrowser.open(page.as_uri())
        time.sleep(_REDIRECTS_S)


@contextlib.contextmanager
def _redirecting(url: str) -> Iterator[Path]:
    """Give a file that leads a browser to the page: its owner alone reads it, and everybody reads command lines."""
    descriptor, name = tempfile.mkstemp(prefix="inference-logging-view-", suffix=".html")
    page = Path(name)
    # Also at an end of the process, which does not wait for this thread.
    atexit.register(page.unlink, missing_ok=True)
    try:
        os.close(descriptor)
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(url)}">', "utf-8")
        yield page
    finally:
        page.unlink(missing_ok=True)
