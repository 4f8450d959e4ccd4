"""S3 and what speaks it: the pyarrow filesystem with its limits, and a client for what that filesystem does badly.

Small files go up in one request, large ones in parts of at least 10 MiB while they are written. The SDK repeats what a
busy or restarting server refuses (500, 503, throttling, resets, timeouts), with growing pauses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from pgtrickle_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from pyarrow import fs

CONNECT_SECONDS: Final = 5.0
REQUEST_SECONDS: Final = 30.0
ATTEMPTS: Final = 6
"""Requests in all for one operation; against a dead server they take about 15 seconds."""

_DENIED: Final = (401, 403)
_MISSING: Final = (404,)

Options = tuple[tuple[str, str], ...]
"""Items of `STORAGE_OPTIONS`, sorted: a key for caches."""


def filesystem(options: Options) -> fs.FileSystem:
    """The pyarrow filesystem for these options.

    Raises:
        ConfigurationError: An option that has to be a number is none.
    """
    from pyarrow import fs

    given = dict(options)
    scheme, host = endpoint_of(given)
    if host:
        _no_checksums()
    return fs.S3FileSystem(
        access_key=given.get("access_key_id"),
        secret_key=given.get("secret_access_key"),
        session_token=given.get("session_token"),
        anonymous=given.get("anonymous") == "true",
        region=_region(given),
        endpoint_override=host,
        scheme=scheme,
        connect_timeout=_number(given, "connect_timeout", CONNECT_SECONDS),
        request_timeout=_number(given, "request_timeout", REQUEST_SECONDS),
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_attempts(given)),
        allow_delayed_open=True,
        force_virtual_addressing=given.get("url_style") == "vhost",
    )


def delete(path: str, options: Options) -> None:
    """Delete `bucket/key`; it is no error when it is not there.

    pyarrow's own deletion writes an empty object for the directory, which other tools show as a file, which costs a
    request each, and which not every server takes.

    Raises:
        OSError: The server refused, or could not be reached.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = path.partition("/")
    try:
        _client(options).delete_object(Bucket=bucket, Key=key)
    except ClientError as error:
        status = _status(error)
        if status not in _MISSING:
            kind = PermissionError if status in _DENIED else OSError
            raise kind(f"deleting {path} was answered with HTTP status {status}") from error
    except BotoCoreError as error:
        raise OSError(f"deleting {path} failed: {type(error).__name__}") from error


def diagnosis(path: str, options: Options) -> Literal["denied", "missing", "unknown"]:
    """Why an operation under `bucket/key` may have failed: pyarrow's errors carry no status, so the bucket is asked.

    `denied`: the credentials may not use the bucket. `missing`: there is no such bucket. `unknown`: anything else.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        _client(options).head_bucket(Bucket=path.partition("/")[0])
    except ClientError as error:
        status = _status(error)
        return "denied" if status in _DENIED else "missing" if status in _MISSING else "unknown"
    except BotoCoreError:
        return "unknown"
    return "unknown"


def endpoint_of(given: Mapping[str, str]) -> tuple[str, str | None]:
    """Scheme and `host:port` of the configured server; no host means the provider's own."""
    scheme, separator, host = given.get("endpoint", "").rstrip("/").partition("://")
    if separator:
        return scheme, host
    return ("http" if given.get("use_ssl") == "false" else "https"), scheme or None


def s3a_options(options: Mapping[str, str]) -> dict[str, str]:
    """The same options as Hadoop's S3A file system spells them; Spark takes them with each read."""
    scheme, host = endpoint_of(options)
    limits = {
        "fs.s3a.connection.establish.timeout": f"{_number(options, 'connect_timeout', CONNECT_SECONDS):g}s",
        "fs.s3a.connection.request.timeout": f"{_number(options, 'request_timeout', REQUEST_SECONDS):g}s",
        "fs.s3a.attempts.maximum": str(_attempts(options)),
    }
    given = {
        "fs.s3a.endpoint": f"{scheme}://{host}" if host else None,
        "fs.s3a.endpoint.region": _region(options),
        "fs.s3a.path.style.access": "true" if host and options.get("url_style") != "vhost" else None,
        "fs.s3a.access.key": options.get("access_key_id"),
        "fs.s3a.secret.key": options.get("secret_access_key"),
        "fs.s3a.session.token": options.get("session_token"),
        "fs.s3a.aws.credentials.provider": _provider(options),
    }
    return limits | {name: value for name, value in given.items() if value}


def _provider(options: Mapping[str, str]) -> str | None:
    """Class that finds credentials; S3A's own chain when none are given."""
    if options.get("anonymous") == "true":
        kind = "Anonymous"
    elif "session_token" in options:
        kind = "Temporary"
    elif "access_key_id" in options:
        kind = "Simple"
    else:
        return None
    return f"org.apache.hadoop.fs.s3a.{kind}AWSCredentialsProvider"


@lru_cache(maxsize=16)
def _client(options: Options) -> Any:
    from boto3.session import Session
    from botocore import UNSIGNED
    from botocore.config import Config

    given = dict(options)
    scheme, host = endpoint_of(given)
    sums = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    style = {"addressing_style": {"path": "path", "vhost": "virtual"}.get(given.get("url_style", ""), "auto")}
    config = Config(
        connect_timeout=_number(given, "connect_timeout", CONNECT_SECONDS),
        read_timeout=_number(given, "request_timeout", REQUEST_SECONDS),
        retries={"mode": "standard", "total_max_attempts": _attempts(given)},
        s3=style,
        **(sums if host else {}),
        **({"signature_version": UNSIGNED} if given.get("anonymous") == "true" else {}),
    )
    # Not the default session: it is shared with whatever else runs in this process.
    return Session().client(
        "s3",
        endpoint_url=f"{scheme}://{host}" if host else None,
        region_name=_region(given),
        aws_access_key_id=given.get("access_key_id"),
        aws_secret_access_key=given.get("secret_access_key"),
        aws_session_token=given.get("session_token"),
        config=config,
    )


def _no_checksums() -> None:
    """Most servers that are not AWS refuse the checksums that the SDK otherwise adds to every upload."""
    os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    os.environ.setdefault("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")


def _region(given: Mapping[str, str]) -> str | None:
    return given.get("region") or ("us-east-1" if given.get("endpoint") else None)


def _attempts(given: Mapping[str, str]) -> int:
    return int(_number(given, "max_attempts", ATTEMPTS))


def _number(given: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(given.get(name, default))
    except ValueError:
        raise ConfigurationError(f"storage option {name} is not a number: {given[name]!r}") from None


def _status(error: Any) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
