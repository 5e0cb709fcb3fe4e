"""A bucket, through boto3: credentials, endpoints and retries are as the SDK's users know them.

An object is put only where none is (``If-None-Match: *``), also at the end of a multipart upload: of two shippers, or
of a try and its repetition, one wins, and the other finds the object there. Each part carries its SHA-256, which the
server compares. A clock that is wrong is corrected by what the server says, since the SDK for Python does not.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import IO, Any, Final, NamedTuple

from inference_logging.errors import MissingExtraError
from inference_logging.ship.s3.place import Place

DEFAULT_REGION: Final = "us-east-1"
ATTEMPTS: Final = 4
"""Of one request, by the SDK, with its pauses; the shipper then tries again with its own."""
BLOCK_BYTES: Final = 1 << 20
CONNECTIONS: Final = 32
"""Those of manifests and of objects that are brought at once."""
_SKEWED: Final = frozenset({"RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"})
_CLOCKS_DIFFER: Final = timedelta(minutes=2)
"""Servers refuse 5 to 15 minutes."""
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_SIGNER: Final = "inference-logging-s3v4"


class StoreError(Exception):
    """A request that failed; ``kind`` is the server's code, or the error's class."""

    def __init__(self, kind: str, message: str, retry_after_s: float = 0.0) -> None:
        self.kind, self.retry_after_s = kind, retry_after_s
        super().__init__(message)


class ExistsError(Exception):
    """An object of this key is there already."""


class EndedError(Exception):
    """The end of the shipper came before that of an upload."""


class Listed(NamedTuple):
    """An object of a listing; ``key`` is below the prefix."""

    key: str
    bytes: int
    etag: str


class Head(NamedTuple):
    """What is known of an object without its bytes."""

    bytes: int
    metadata: Mapping[str, str]


class Store:
    """The objects of a place. Raises ``MissingExtraError`` without boto3, ``StoreError`` where a request fails."""

    def __init__(self, place: Place, *, timeout_s: float = 30.0, ca_file: str | None = None) -> None:
        """Prepare a client; it connects at its first request."""
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError:
            raise MissingExtraError("object storage", "boto3", "s3") from None
        self._errors = (ClientError, BotoCoreError)
        self._place = place
        self._skew = timedelta()
        # Servers of one's own have no names of hosts for buckets.
        style: Any = {"addressing_style": "path"} if place.endpoint else {}
        try:
            session = boto3.session.Session()
            self._client: Any = session.client(
                "s3",
                endpoint_url=place.endpoint,
                region_name=place.region or session.region_name or DEFAULT_REGION,
                verify=ca_file,
                config=Config(
                    connect_timeout=timeout_s,
                    read_timeout=timeout_s,
                    max_pool_connections=CONNECTIONS,
                    retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                    s3=style,
                    # What is put has a SHA-256 of its own, and servers of one's own may not know the SDK's checksums.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                ),
            )
        except BotoCoreError as error:
            raise StoreError(type(error).__name__, str(error)) from None
        _register_signer(self)
        self._client.meta.events.register("choose-signer.s3", self._choose_signer)

    @property
    def skew(self) -> timedelta:
        """How far the server's clock is ahead of this one, where a request was refused for that."""
        return self._skew

    def _choose_signer(self, signing_name: str, context: Mapping[str, Any], **_: Any) -> str | None:
        is_usual = signing_name == "s3" and context.get("auth_type", "v4") == "v4"
        return _SIGNER if self._skew and is_usual else None

    def put(self, key: str, body: bytes, metadata: Mapping[str, str], content_type: str) -> None:
        """Put a small object where none is. Raises ``ExistsError``, ``StoreError``."""
        self._ask(
            "put_object", Key=self._place.full(key), Body=body, Metadata=dict(metadata), ContentType=content_type,
            ChecksumSHA256=_digest(body), IfNoneMatch="*",
        )  # fmt: skip

    def upload(
        self, key: str, file: IO[bytes], bytes_: int, metadata: Mapping[str, str], go_on: Callable[[], None]
    ) -> None:
        """Put a file where no object is, in parts above ``part_bytes``. ``go_on`` is called before each part.

        Raises ``ExistsError``, ``StoreError``, and what ``go_on`` raises.
        """
        content_type = "application/zstd" if key.endswith(".zst") else "application/vnd.apache.parquet"
        if bytes_ <= self._place.part_bytes:
            self.put(key, file.read(), metadata, content_type)
            return
        full = self._place.full(key)
        # Those of an earlier life: no other shipper has this segment.
        self.abort_uploads(key)
        made = self._ask(
            "create_multipart_upload", Key=full, Metadata=dict(metadata), ContentType=content_type,
            ChecksumAlgorithm="SHA256",
        )  # fmt: skip
        upload = {"Key": full, "UploadId": made["UploadId"]}
        try:
            parts = []
            for number, block in enumerate(iter(lambda: file.read(self._place.part_bytes), b""), 1):
                go_on()
                digest = _digest(block)
                part = self._ask("upload_part", **upload, PartNumber=number, Body=block, ChecksumSHA256=digest)
                parts.append({"PartNumber": number, "ETag": part["ETag"], "ChecksumSHA256": digest})
            self._ask("complete_multipart_upload", **upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
        except BaseException:
            with contextlib.suppress(StoreError, ExistsError):
                self._ask("abort_multipart_upload", **upload)
            raise

    def abort_uploads(self, key: str) -> int:
        """Abort multipart uploads of a key that were not finished; return how many."""
        full = self._place.full(key)
        found = self._ask("list_multipart_uploads", Prefix=full)
        ours = [upload for upload in found.get("Uploads", []) if upload["Key"] == full]
        for upload in ours:
            self._ask("abort_multipart_upload", Key=full, UploadId=upload["UploadId"])
        return len(ours)

    def head(self, key: str) -> Head | None:
        """Return what is known of an object, or None."""
        try:
            found = self._ask("head_object", Key=self._place.full(key))
        except StoreError as error:
            if error.kind in ("404", "NoSuchKey", "NotFound"):
                return None
            raise
        return Head(int(found["ContentLength"]), found.get("Metadata", {}))

    def read(self, key: str) -> bytes:
        """Return a small object."""
        return b"".join(self.blocks(key))

    def blocks(self, key: str) -> Iterator[bytes]:
        """Iterate over the bytes of an object."""
        body = self._ask("get_object", Key=self._place.full(key))["Body"]
        with contextlib.closing(body), self._translated():
            yield from body.iter_chunks(BLOCK_BYTES)

    def list(self, beginning: str = "") -> Iterator[Listed]:
        """Iterate over the objects whose key below the prefix has this beginning, in the order of their keys.

        What consoles put for a folder is none: a key that ends with a slash, of no bytes.
        """
        given: dict[str, str] = {"Prefix": self._place.full(beginning)}
        while True:
            page = self._ask("list_objects_v2", **given)
            for found in page.get("Contents", []):
                if found["Key"].endswith("/") and not int(found["Size"]):
                    continue
                yield Listed(self._place.below(found["Key"]), int(found["Size"]), str(found["ETag"]))
            if not page.get("IsTruncated"):
                return
            given["ContinuationToken"] = page["NextContinuationToken"]

    def _ask(self, operation: str, **given: Any) -> dict[str, Any]:
        with self._translated():
            try:
                return dict(getattr(self._client, operation)(Bucket=self._place.bucket, **given))
            except self._errors as error:
                if not self._corrects_clock(error):
                    raise
            return dict(getattr(self._client, operation)(Bucket=self._place.bucket, **given))

    def _corrects_clock(self, error: Any) -> bool:
        """Return whether the server has refused the time of a request, and now it is known."""
        answer = getattr(error, "response", None) or {}
        about = answer.get("ResponseMetadata", {})
        # The answer to a HEAD has no body that could name the reason.
        if answer.get("Error", {}).get("Code") not in _SKEWED and about.get("HTTPStatusCode") != HTTPStatus.FORBIDDEN:
            return False
        with contextlib.suppress(ValueError, TypeError):
            said = parsedate_to_datetime(about.get("HTTPHeaders", {}).get("date", ""))
            skew = timedelta(seconds=round((said - datetime.now(timezone.utc)).total_seconds()))
            if abs(skew - self._skew) > _CLOCKS_DIFFER:
                self._skew = skew
                return True
        return False

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise _translate(error, self._place) from None
        except OSError as error:  # a connection that ends within an answer
            raise StoreError(type(error).__name__, f"s3://{self._place.bucket}: {error}") from None


def _translate(error: Any, place: Place) -> Exception:
    answer = getattr(error, "response", None)
    if answer is None:
        return StoreError(type(error).__name__, f"s3://{place.bucket}: {error}")
    code = str(answer.get("Error", {}).get("Code", ""))
    about = answer.get("ResponseMetadata", {})
    if code == "PreconditionFailed" or about.get("HTTPStatusCode") == HTTPStatus.PRECONDITION_FAILED:
        return ExistsError(str(error))
    after = about.get("HTTPHeaders", {}).get("retry-after", "")
    return StoreError(
        code or type(error).__name__, f"s3://{place.bucket}: {error}", float(after) if after.isdigit() else 0.0
    )


def _digest(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


def _register_signer(store: Store) -> None:
    """Give the SDK a signer that takes the time from ``store``: it is chosen only once the clocks differ."""
    from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth

    class Signer(S3SigV4Auth):  # type: ignore[misc]  # the SDK has no types
        def _modify_request_before_signing(self, request: Any) -> None:
            now = datetime.now(timezone.utc) + store.skew
            request.context["timestamp"] = now.strftime(_STAMP)
            super()._modify_request_before_signing(request)

    AUTH_TYPE_MAPS[_SIGNER] = Signer
