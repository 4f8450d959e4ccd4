"""Where a lake is: the catalog database, the schema inside it, and the path of the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LakeLocation:
    """The place of one lake.

    Attributes:
        catalog_dsn: libpq connection string or URL of the PostgreSQL database that holds the catalog. Secret.
        catalog_schema: PostgreSQL schema with the `ducklake_*` tables.
        data_path: Root of the files: a local directory or an object-store URL. Empty means "what the catalog says".
        storage_options: Object-store client options; never shown. Keys: `access_key_id`, `secret_access_key`,
            `session_token`, `region`, `endpoint` (host:port or URL), `use_ssl` ("true"/"false"),
            `url_style` ("path"/"vhost").
    """

    catalog_dsn: str = field(repr=False)
    catalog_schema: str = "main"
    data_path: str = ""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)


def with_slash(path: str) -> str:
    """`path` with exactly the trailing slash that DuckLake expects."""
    return path if not path or path.endswith("/") else f"{path}/"


def same_place(left: str, right: str) -> bool:
    """Whether two data paths mean the same directory (DuckLake compares text; people write it in several ways)."""
    return _plain(left) == _plain(right)


def _plain(path: str) -> str:
    return with_slash(path.removeprefix("file://"))
