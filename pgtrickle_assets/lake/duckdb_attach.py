"""Attach a lake to a DuckDB connection, through DuckLake's official extension.

The connection string of the catalog goes into a DuckDB secret and not into the ATTACH text, so that neither an error
nor a listing of databases shows the password.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pgtrickle_assets.errors import LakeError, LakeUnavailableError
from pgtrickle_assets.lake.location import LakeLocation

if TYPE_CHECKING:
    import duckdb

_SECRET_KEYS: Final = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "dbname": "DATABASE"}
_BUSY_RETRIES: Final = 100

_S3_KEYS: Final = {
    "access_key_id": "KEY_ID",
    "secret_access_key": "SECRET",
    "session_token": "SESSION_TOKEN",
    "region": "REGION",
    "url_style": "URL_STYLE",
}


def attach(
    connection: duckdb.DuckDBPyConnection,
    location: LakeLocation,
    alias: str = "lake",
    *,
    read_only: bool = False,
    at: int | None = None,
) -> None:
    """Attach the lake under a name.

    Args:
        connection: A DuckDB connection with the extensions `ducklake` and `postgres_scanner` (and `httpfs` for object
            stores) loaded.
        location: The lake.
        alias: Name of the database in DuckDB.
        read_only: Forbid writes.
        at: Attach one snapshot instead of the newest state; implies `read_only`.

    Raises:
        LakeError: DuckDB refuses the lake.
        LakeUnavailableError: The catalog cannot be reached.
    """
    import duckdb

    try:
        for text in attach_statements(location, alias, read_only=read_only, at=at):
            connection.execute(text)
    except (duckdb.IOException, duckdb.ConnectionException) as error:
        raise LakeUnavailableError(
            f"DuckDB cannot attach the lake in schema {location.catalog_schema}: {redact(str(error), location)}"
        ) from None
    except duckdb.Error as error:
        raise LakeError(
            f"DuckDB cannot attach the lake in schema {location.catalog_schema}: {redact(str(error), location)}"
        ) from None


def attach_statements(
    location: LakeLocation, alias: str, *, read_only: bool = False, at: int | None = None
) -> tuple[str, ...]:
    """The statements that `attach` runs; they hold the password."""
    secret = f"pgt_{uuid4().hex}"
    options = [f"METADATA_SCHEMA {_literal(location.catalog_schema)}", f"META_SECRET {_literal(secret)}"]
    if at is not None:
        options.append(f"SNAPSHOT_VERSION {at}")
    elif read_only:
        options.append("READ_ONLY")
    statements = [_catalog_secret(location, secret), f"SET ducklake_max_retry_count = {_BUSY_RETRIES}"]
    if location.data_path.startswith(("s3://", "s3a://")) or location.storage_options.get("endpoint"):
        statements.append(_s3_secret(location, f"{secret}_s3"))
    plain = _plain_options(location)
    statements.append(f"ATTACH {_literal(f'ducklake:postgres:{plain}')} AS {_name(alias)} ({', '.join(options)})")
    return tuple(statements)


def _parts(location: LakeLocation) -> dict[str, str]:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {key: str(value) for key, value in conninfo_to_dict(location.catalog_dsn).items() if value is not None}
    except psycopg.ProgrammingError:
        raise LakeError("the connection string of the lake's catalog is malformed") from None


def _catalog_secret(location: LakeLocation, secret: str) -> str:
    parts = _parts(location)
    values = [f"{theirs} {_literal(parts[ours])}" for ours, theirs in _SECRET_KEYS.items() if ours in parts]
    return f"CREATE SECRET {secret} ({', '.join(['TYPE postgres', *values])})"


def _plain_options(location: LakeLocation) -> str:
    """Connection options that a DuckDB secret has no place for, such as `sslmode`; none of them secret."""
    parts = _parts(location)
    known = {*_SECRET_KEYS, "passfile", "sslpassword"}
    return " ".join(f"{key}={_conninfo(value)}" for key, value in parts.items() if key not in known)


def _conninfo(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _s3_secret(location: LakeLocation, secret: str) -> str:
    options = location.storage_options
    values = ["TYPE s3"]
    values += [f"{theirs} {_literal(options[ours])}" for ours, theirs in _S3_KEYS.items() if options.get(ours)]
    endpoint = options.get("endpoint", "")
    if endpoint:
        scheme, separator, host = endpoint.partition("://")
        plain = options.get("use_ssl", "true").lower() == "false" or (bool(separator) and scheme == "http")
        values.append(f"ENDPOINT {_literal(host if separator else endpoint)}")
        values.append(f"USE_SSL {str(not plain).lower()}")
    return f"CREATE SECRET {secret} ({', '.join(values)})"


def redact(text: str, location: LakeLocation) -> str:
    """The first line of a message without the location's secrets."""
    line = (text.splitlines() or [""])[0]
    secrets = [_parts(location).get("password"), *(location.storage_options.get(key) for key in _S3_SECRETS)]
    for secret in secrets:
        if secret:
            line = line.replace(secret, "***")
    return line


_S3_SECRETS: Final = ("secret_access_key", "session_token", "access_key_id", "account_key")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
