"""A small S3 in the test's process, for faults that no real server makes on request: what `shipping/s3` asks, no more.

Signatures are not checked. ``faults`` are called with each request before it is served, and can answer it themselves.
Commands write segments, ship them into a bucket, look into it, and verify it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest
import zstandard

from inference_logging import Config, Logger, get_logger
from tests.kit.command_line import Done, run

NAME = "logs"


@dataclass
class Stored:
    """An object, or an upload that is not finished."""

    key: str
    content: bytes = b""
    metadata: dict[str, str] = field(default_factory=dict)
    parts: dict[int, bytes] = field(default_factory=dict)


class Bucket:
    """The bucket ``logs``."""

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, Stored] = {}
        self.asked: list[str] = []
        """Method and path of each request."""
        self.faults: list[Callable[[Request], bool]] = []
        """Each is called until it returns True once, which says that it has answered."""
        self.page = 1000
        self.lock, self.numbers = threading.Lock(), itertools.count(1)
        handler = type("Handler", (Request,), {"bucket": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Where objects go."""
        return f"s3://{NAME}/here?endpoint=http://127.0.0.1:{self._server.server_address[1]}"

    def named(self, ending: str = "") -> list[str]:
        """Return the keys with an ending."""
        return sorted(key for key in self.objects if key.endswith(ending))

    def __enter__(self) -> Bucket:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Request(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    bucket: Bucket

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        self.key = unquote(parts.path).removeprefix(f"/{NAME}/").removeprefix(f"/{NAME}")
        self.asks = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        with self.bucket.lock:
            self.bucket.asked.append(f"{self.command} {self.path}")
            for fault in list(self.bucket.faults):
                if fault(self):
                    self.bucket.faults.remove(fault)
                    return
            self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            getattr(self, f"_{self.command.lower()}")()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - as http.server calls them

    def answer(self, status: int, body: str | bytes = b"", **headers: str) -> None:
        """Answer; underscores in the names of headers are hyphens."""
        content = body.encode() if isinstance(body, str) else body
        self.send_response_only(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def error(self, status: int, code: str, **headers: str) -> bool:
        """Answer with an error of S3; a fault that ends so has answered."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>", **headers)
        return True

    def reset(self) -> bool:
        """End the connection in the middle of what is sent, as ``error``."""
        self.close_connection = True
        with contextlib.suppress(OSError):  # its client may be dead
            self.connection.shutdown(socket.SHUT_RDWR)
        return True

    def _metadata(self) -> dict[str, str]:
        return {name[11:]: value for name, value in self.headers.items() if name.startswith("x-amz-meta-")}

    def _is_refused(self) -> bool:
        if self.headers.get("If-None-Match") == "*" and self.key in self.bucket.objects:
            self.answer(412, "<Error><Code>PreconditionFailed</Code><Message>it is there</Message></Error>")
            return True
        return False

    def _put(self) -> None:
        etag = hashlib.md5(self.body).hexdigest()
        if "partNumber" in self.asks:
            upload = self.bucket.uploads.get(self.asks["uploadId"])
            if upload is None:
                self.answer(404, "<Error><Code>NoSuchUpload</Code></Error>")
                return
            upload.parts[int(self.asks["partNumber"])] = self.body
        elif self._is_refused():
            return
        else:
            self.bucket.objects[self.key] = Stored(self.key, self.body, self._metadata())
        self.answer(200, ETag=f'"{etag}"')

    def _post(self) -> None:
        if "uploads" in self.asks:
            name = f"upload-{next(self.bucket.numbers)}"
            self.bucket.uploads[name] = Stored(self.key, metadata=self._metadata())
            self.answer(200, f"<R><Bucket>{NAME}</Bucket><Key>{escape(self.key)}</Key><UploadId>{name}</UploadId></R>")
        elif not self._is_refused():
            upload = self.bucket.uploads.pop(self.asks["uploadId"])
            upload.content = b"".join(part for _, part in sorted(upload.parts.items()))
            self.bucket.objects[self.key] = upload
            self.answer(200, f"<R><Key>{escape(self.key)}</Key><ETag>x</ETag></R>")

    def _delete(self) -> None:
        if "uploadId" in self.asks:
            self.bucket.uploads.pop(self.asks["uploadId"], None)
        else:
            self.bucket.objects.pop(self.key, None)
        self.answer(204)

    def _head(self) -> None:
        self._get()

    def _get(self) -> None:
        if "uploads" in self.asks:
            self._list_uploads()
        elif "list-type" in self.asks:
            self._list()
        elif (found := self.bucket.objects.get(self.key)) is None:
            self.answer(404, "<Error><Code>NoSuchKey</Code></Error>")
        else:
            self.answer(200, found.content, **{f"x-amz-meta-{name}": value for name, value in found.metadata.items()})

    def _list_uploads(self) -> None:
        found = "".join(
            f"<Upload><Key>{escape(one.key)}</Key><UploadId>{name}</UploadId></Upload>"
            for name, one in self.bucket.uploads.items()
            if one.key.startswith(self.asks.get("prefix", ""))
        )
        self.answer(200, f"<R><IsTruncated>false</IsTruncated>{found}</R>")

    def _list(self) -> None:
        beginning, after = self.asks.get("prefix", ""), self.asks.get("continuation-token", "")
        keys = [key for key in self.bucket.named() if key.startswith(beginning) and key > after]
        page = keys[: self.bucket.page]
        more = len(keys) > len(page)
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.bucket.objects[key].content)}</Size>"
            f"<ETag>{hashlib.md5(self.bucket.objects[key].content).hexdigest()}</ETag></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        self.answer(200, f"<R><IsTruncated>{str(more).lower()}</IsTruncated>{token}{contents}</R>")


def signed_at(request: Request) -> str:
    """Return the time that a request was signed with."""
    found = re.search(r"\d{8}T\d{6}Z", request.headers.get("X-Amz-Date", ""))
    return found[0] if found else ""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Serve an empty bucket, with credentials as the SDK finds them first."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with Bucket() as serving:
        yield serving


CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-has",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
}


def write(config: Config, count: int = 1000) -> None:
    """Write records in many batches."""
    with Logger(config) as logger:
        for number in range(count):
            assert get_logger("t").info("n", n=number, some="x" * 100)
            if number % 10 == 9:
                assert logger.flush()


def ship(directory: Path, url: str, *more: str) -> Done:
    """Ship what is sealed."""
    return run("ship", "--directory", str(directory), "--to", url, "--once", *more)


def segments(directory: Path) -> list[Path]:
    """Return the plain segments."""
    return sorted(path for path in directory.glob("*.jsonl") if not path.is_symlink())


def content(bucket: Bucket, key: str) -> bytes:
    """Return the lines in an object."""
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(bucket.objects[key].content)).read()


def faults(url: str, *more: str) -> list[tuple[str, str]]:
    """Return the faults that `verify` finds: kind and sentence."""
    done = run("verify", url, "--json", *more)
    report = json.loads(done.out)
    assert done.code == (1 if report["problems"] else 0), done
    return [(problem["kind"], problem["text"]) for problem in report["problems"]]


def rows(url: str, sql: str) -> list[dict[str, Any]]:
    """Return the rows that `query` finds."""
    done = run("query", sql, url, "--format", "json")
    assert done.code == 0, done
    return [json.loads(line) for line in done.out.splitlines()]
