"""What commands share, with one meaning everywhere: the configuration, the segments, the time; their examples."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from inference_logging.read.segments import Segment, segments
from inference_logging.read.segments.reading import CLOCKS_S

if TYPE_CHECKING:
    from inference_logging.record.config import Config

Command = TypeVar("Command", bound=Callable[..., Any])

CONFIG = click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="YAML configuration file, as config_file."
)
SERVICE_NAME = click.option("--service-name", help="The servers' service_name.")
QUEUE_DIRECTORY = click.option(
    "--queue-directory", type=click.Path(path_type=Path), help="The servers' queue_directory."
)

BUCKETS = "s3://"


class SegmentsType(click.Path):
    """A path, or a bucket's URL, which stays a text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Leave a URL as it is."""
        is_bucket = isinstance(value, str) and value.startswith(BUCKETS)
        return value if is_bucket else super().convert(value, param, ctx)


SEGMENTS = SegmentsType(path_type=Path)


class OutputType(click.Path):
    """A file to write. Its folder must exist: that is checked before anything is read or measured."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a file whose folder does not exist or is a file."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            folder = str(path.parent)
            wrong = f"{folder!r} is not a folder" if path.parent.exists() else f"the folder {folder!r} does not exist"
            self.fail(f"{str(path)!r}: {wrong}", param, ctx)
        return path


def not_a(kind: str, path: Path) -> str:
    """Return what is wrong with a path that names no ``kind``: it is something else, or does not exist."""
    return f"{path}: {'not a' if path.exists() else 'no such'} {kind}"


OUTPUT = OutputType(path_type=Path, dir_okay=False)

DIRECTORY = click.argument("directory", required=False, type=SEGMENTS)
"""The place of the segments: as given, else as configured; s3:// is brought to this machine."""

PREFIX = click.option(
    "--prefix",
    "prefixes",
    multiple=True,
    metavar="NAME",
    callback=lambda _context, _parameter, names: names or None,
    help="Only segments of this service_name; repeatable.",
)

FORMS: Final = "RFC 3339 (2026-11-21T05:00:00Z; UTC unless it names a zone), or an age: 90s, 15m, 2h, 7d"

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", re.ASCII)


def from_option(_context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Read the value of an option; a wrong value is a usage error."""
    if value is None:
        return None
    try:
        return point_in_time(value, time.time())
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None


SINCE = click.option(
    "--since", callback=from_option, metavar="TIME", help=f"Only records from this time on: {FORMS} ago."
)

UNTIL = click.option("--until", callback=from_option, metavar="TIME", help="Only records before this time.")


def examples(*lines: str) -> str:
    """Return the epilog of a command: verbatim command lines, each runnable in a shell. A test runs every one."""
    # click leaves a paragraph that begins with a backspace unwrapped.
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def configuration(**given: Any) -> Config:
    """Return the configuration with the parameters from the command line; None means not given."""
    from inference_logging.record.config import Config  # only where one is read: pydantic takes its time

    return Config(**{name: value for name, value in given.items() if value is not None})


def chosen(
    given: Sequence[Any], prefixes: Sequence[str] | None, config_file: Path | None, service_name: str | None
) -> tuple[Sequence[Any], tuple[str, ...] | None]:
    """Return the directories, by default the configured one, and the services whose segments count; None: all."""
    if not given or config_file is not None or service_name is not None:
        configured = configuration(config_file=config_file, service_name=service_name)
        given = given or (configured.directory,)
    return given, (*(prefixes or ()), *([service_name] if service_name is not None else ())) or None


class Place(NamedTuple):
    """The place of the segments that a command reads, and their services; None: all services."""

    path: Path
    prefixes: Collection[str] | None

    def segments(self, since: float | None = None) -> list[Segment]:
        """Return the segments of a directory, or the segment that a path or a link such as logs/latest names.

        With ``since`` only those of a directory that may hold records from then on, by the time of their last write.
        Raises ``UsageError`` naming the place if it is missing, or has no segments.
        """
        if self.path.is_dir():
            found = segments(self.path, self.prefixes)
            if not found:
                services = f" of {', '.join(self.prefixes)}" if self.prefixes else ""
                parquet = "; it has Parquet files, which only query reads" if self.tables() else ""
                raise click.UsageError(f"{self.path}: no segments{services}{parquet}")
            return [one for one in found if since is None or one.written_unix_s() + CLOCKS_S >= since]
        segment = self.segment()
        if segment is None:
            wrong = "neither a directory nor a segment" if self.path.exists() else "no such directory"
            raise click.UsageError(f"{self.path}: {wrong}")
        return [segment]

    def tables(self) -> list[Path]:
        """Return the Parquet files of a directory: segments as `ship --to s3://` writes them on request."""
        return sorted(self.path.glob("*.parquet")) if self.path.is_dir() else []

    def segment(self) -> Segment | None:
        """Return the segment that ``path`` names, directly or by a link; None if it names none."""
        return Segment.parse(self.path.resolve()) if self.path.is_file() else None


def brought(url: str) -> Path:
    """Return a folder with the objects of a bucket. Raises ``UsageError`` for a wrong URL, ``ClickException``."""
    from inference_logging.ship.s3 import reading  # only where there is a bucket
    from inference_logging.ship.s3.place import PlaceError
    from inference_logging.ship.s3.store import StoreError

    try:
        return reading.fetch(url, reading.cache_folder())
    except PlaceError as error:
        raise click.UsageError(str(error)) from None
    except (StoreError, reading.AlteredError) as error:
        raise click.ClickException(str(error)) from None


def of_segments(command: Command) -> Command:
    """Add the options for the input of a command, which gets them as its one argument ``place``."""

    @functools.wraps(command)
    def with_place(
        directory: Path | str | None,
        prefixes: Sequence[str] | None,
        config_file: Path | None,
        service_name: str | None,
        **rest: Any,
    ) -> Any:
        given = [] if directory is None else [directory]
        (found,), services = chosen(given, prefixes, config_file, service_name)
        return command(place=Place(brought(found) if isinstance(found, str) else found, services), **rest)

    decorated: Any = with_place
    for option in (PREFIX, SERVICE_NAME, CONFIG, DIRECTORY):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]  # click gives back what it is given


def point_in_time(text: str, now_unix_s: float) -> float:
    """Return seconds since the Unix epoch. Raises ``ValueError`` naming ``text`` if it is neither a time nor an age."""
    if _AGE.fullmatch(text.strip()):
        return now_unix_s - duration_s(text)
    try:
        # Python 3.10's fromisoformat knows neither Z nor a fraction that has not six digits.
        written = re.sub(r"\.(\d+)", lambda found: f".{found[1]:0<6.6}", text.strip().upper())
        at = datetime.fromisoformat(written.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{text!r}: must be {FORMS}") from None
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def duration_s(text: str) -> float:
    """Return the seconds of ``90s``, ``15m``, ``2h`` or ``7d``. Raises ``ValueError`` naming ``text`` otherwise."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r}: must be a time such as 90s, 15m, 2h or 7d")
    return float(match[1]) * _SECONDS[match[2]]
