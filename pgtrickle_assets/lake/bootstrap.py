"""Create a new lake: all catalog tables and first rows in one transaction, under the catalog lock."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.location import LakeLocation, with_slash
from pgtrickle_assets.lake.schema_ddl import VERSION, create_statements
from pgtrickle_assets.lake.sqltext import TABLE_EXISTS, statement

if TYPE_CHECKING:
    from pgtrickle_assets.lake.connections import CatalogConnection, Connections

_LOCK_SPACE: Final = 0x7067744C  # "pgtL"
CREATED_BY: Final = "pgtrickle-assets"

_METADATA: Final = """
INSERT INTO {c}.ducklake_metadata (key, value) VALUES
('version', %s), ('created_by', %s), ('data_path', %s), ('encrypted', 'false'), ('data_inlining_row_limit', '0')
"""


def lock_key(schema: str) -> tuple[int, int]:
    """Advisory lock of a catalog: (constant, hash of its schema); advisory locks are per database already."""
    return _LOCK_SPACE, zlib.crc32(schema.encode()) - 2**31


def create_lake(connections: Connections, location: LakeLocation) -> bool:
    """Create the lake unless its catalog is there; True when it was created.

    Inlining is switched off for the whole lake: rows belong into files that Spark reads, and an inline table that is
    not kept in step with its table loses rows.

    Raises:
        LakeError: No data path is configured, or the role may not create the schema.
        LakeUnavailableError: The catalog database cannot be reached.
    """
    import psycopg

    with connections.checkout() as connection:
        try:
            # Opening a lake must not wait for a commit that holds the lock.
            if lake_exists(connection, location.catalog_schema):
                return False
            with connection.transaction():
                return _create(connection, location)
        except psycopg.Error as error:
            raise connections.translate(error) from error


def _create(connection: CatalogConnection, location: LakeLocation) -> bool:
    schema = location.catalog_schema
    connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", lock_key(schema))
    if lake_exists(connection, schema):
        return False
    if not location.data_path:
        raise LakeError("a new lake needs a data path", hint="Set where its files go: a directory or a bucket URL.")
    for template in create_statements():
        connection.execute(statement(template, schema), ())
    connection.execute(statement(_METADATA, schema), (VERSION, CREATED_BY, with_slash(location.data_path)))
    return True


def lake_exists(connection: CatalogConnection, schema: str) -> bool:
    """Whether the schema of a database holds a lake's catalog."""
    found = connection.execute(TABLE_EXISTS, (schema, "ducklake_metadata")).fetchone()
    return bool(found and found[0])
