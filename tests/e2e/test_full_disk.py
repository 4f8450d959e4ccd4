"""A full disk is told in one line; nothing half-made stays, and the next refresh after making room is right."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.orphans import remove_orphans
from tests.e2e.lakehouse import Lakehouse, lakehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "SELECT grp, count(*) AS n, max(text) AS last FROM notes GROUP BY grp"
SETUP = ("CREATE TABLE notes (id int PRIMARY KEY, grp int, text text)",)


def _notes(start: int, count: int) -> str:
    """Rows whose text cannot be compressed."""
    return (
        f"INSERT INTO notes SELECT i, i % 5000, md5(i::text) || md5((i * 7)::text) "
        f"FROM generate_series({start}, {start + count - 1}) i"
    )


class Disk:
    """A file system of its own, small."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self._mount("size=2m")

    def _mount(self, options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)], check=True)

    def make_room(self) -> None:
        self._mount("remount,size=200m")

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    try:
        made = Disk(tmp_path / "disk")
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("mounting a small file system is not allowed here")
    yield made
    made.close()


def _expect_no_space(error: LakeError, disk: Disk) -> None:
    text = str(error)
    assert "no space is left" in text
    assert str(disk.path) in text
    assert "\n" not in text
    assert error.hint == "Free space, then refresh again."


def _expect_right(system: Lakehouse) -> None:
    assert system.lake_rows("st.q") == system.postgres_rows(QUERY)
    system.check()
    system.engine.maintain()
    left = remove_orphans(
        system.engine._workspace.lake, is_running=lambda _: False, minimum_age=timedelta(0), dry_run=True
    )
    assert left.paths == ()


def test_a_disk_that_is_full_while_a_source_is_copied(
    new_database: Callable[[], str], tmp_path: Path, spark: SparkSession, disk: Disk
) -> None:
    setup = (*SETUP, _notes(1, 60_000))
    with lakehouse(
        new_database, tmp_path, spark, {"st.q": QUERY}, setup, data_path=str(disk.path), orphan_retention_hours=0
    ) as system:
        with pytest.raises(LakeError) as caught:
            system.refresh()
        _expect_no_space(caught.value, disk)
        assert system.engine.history(None, 10) == []
        disk.make_room()
        assert system.refresh()["st.q"].strategy.value == "full"
        _expect_right(system)


@pytest.mark.parametrize("rows", [40_000, 300_000])
def test_a_disk_that_is_full_while_changes_arrive(
    rows: int, new_database: Callable[[], str], tmp_path: Path, spark: SparkSession, disk: Disk
) -> None:
    setup = (*SETUP, _notes(1, 10_000))
    with lakehouse(
        new_database, tmp_path, spark, {"st.q": QUERY}, setup, data_path=str(disk.path), orphan_retention_hours=0
    ) as system:
        assert system.refresh()["st.q"].strategy.value == "full"
        before = system.lake_rows("st.q")
        head = system.engine.head()
        system.execute(_notes(20_000, rows))
        with pytest.raises(LakeError) as caught:
            system.refresh()
        _expect_no_space(caught.value, disk)
        assert system.lake_rows("st.q") == before
        assert system.engine.head() == head
        disk.make_room()
        system.refresh()
        _expect_right(system)


def test_a_disk_that_is_full_while_a_result_is_written(
    new_database: Callable[[], str], tmp_path: Path, spark: SparkSession, disk: Disk
) -> None:
    # The mirror fits; the result, sixty times as many rows, does not.
    query = "SELECT a.id, b.k, md5(a.text || b.k::text) AS text FROM notes a CROSS JOIN ks b"
    setup = (
        *SETUP,
        "CREATE TABLE ks (k int PRIMARY KEY)",
        "INSERT INTO ks SELECT generate_series(1, 60)",
        _notes(1, 5_000),
    )
    with lakehouse(
        new_database, tmp_path, spark, {"st.q": query}, setup, data_path=str(disk.path), orphan_retention_hours=0
    ) as system:
        cut = system.engine.capture("test").cut
        with pytest.raises(LakeError) as caught:
            system.engine.refresh("st.q", cut=cut)
        _expect_no_space(caught.value, disk)
        (row,) = system.engine.status()
        assert "no space is left" in str(row.last_error)
        disk.make_room()
        assert system.refresh()["st.q"].strategy.value == "full"
        assert system.lake_rows("st.q") == system.postgres_rows(query)
        system.check()
