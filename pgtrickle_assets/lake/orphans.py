"""Files under the lake's data path that no snapshot names: leavings of deliveries that never committed.

A file is known by its name, which every writer makes unique, and not by its path: paths are spelled in many ways, and a
mistake there would delete data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.lake.storage import StoredFile, storage_for

if TYPE_CHECKING:
    from pgtrickle_assets.lake.catalog import Lake

_KNOWN: Final = """
SELECT path FROM {c}.ducklake_data_file
UNION ALL SELECT path FROM {c}.ducklake_delete_file
UNION ALL SELECT path FROM {c}.ducklake_files_scheduled_for_deletion
"""
_SUFFIXES: Final = (".parquet", ".puffin")
_OUR_PREFIX: Final = "pgt-"
_FOREIGN_PREFIX: Final = "ducklake-"
_OURS: Final = re.compile(r"pgt-(.+)-[0-9a-f]{32}(-delete)?\.parquet")


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """What a clean-up removed, or would remove."""

    paths: tuple[str, ...]
    bytes: int


def delivery_of(file_name: str) -> str | None:
    """Id of the delivery that wrote a file, from its name; None when it is not a file of ours."""
    match = _OURS.fullmatch(file_name)
    return match[1] if match else None


def remove_orphans(
    lake: Lake,
    *,
    is_running: Callable[[str], bool],
    minimum_age: timedelta,
    foreign_minimum_age: timedelta | None = None,
    dry_run: bool = False,
) -> RemovedFiles:
    """Remove files of ours, and of DuckDB's extension, that no row of the catalog names; files of others stay.

    Args:
        lake: The lake.
        is_running: Says of a file name whether its delivery (`delivery_of`) may still commit; such files stay.
        minimum_age: Younger files stay whoever wrote them. Must exceed the longest time between writing a file and its
            commit for writers that `is_running` does not know.
        foreign_minimum_age: The same for files with names as DuckDB's extension gives them; None to leave them alone.
        dry_run: Only say which.
    """
    storage = storage_for(lake.data_path, lake.location.storage_options)
    # Storage first, catalog second: a file that is committed in between is in the catalog then.
    found = [file for file in storage.files(lake.data_path) if file.path.endswith(_SUFFIXES)]
    known = {PurePosixPath(row[0]).name for row in lake.connections.fetch(lake.sql(_KNOWN), ())}
    now = datetime.now(UTC)
    ages = {_OUR_PREFIX: minimum_age, _FOREIGN_PREFIX: foreign_minimum_age}
    removed: list[StoredFile] = []
    for file in found:
        name = PurePosixPath(file.path).name
        age = next((age for prefix, age in ages.items() if name.startswith(prefix)), None)
        if name in known or age is None or file.modified is None or file.modified > now - age or is_running(name):
            continue
        if dry_run or storage.delete(file.path):
            removed.append(file)
    return RemovedFiles(tuple(file.path for file in removed), sum(file.size for file in removed))
