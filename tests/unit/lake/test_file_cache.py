"""Columns on the local disk come back as they were, keep to their limit, and never stand in the way."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from pgtrickle_assets.lake import file_cache
from pgtrickle_assets.lake.file_cache import LARGE_ROWS, ColumnFiles, FileCache
from pgtrickle_assets.lake.model import DataFile

COLUMNS = {
    "whole numbers": pa.chunked_array([[1, None, -(2**63)], [], [7]], pa.int64()),
    "decimals": pa.chunked_array([[Decimal("1.50"), None]], pa.decimal128(38, 2)),
    "text": pa.chunked_array([["", None, "Ł"], ["x" * 1000]]),
    "lists": pa.chunked_array([[[1, None], None, []]]),
    "nothing": pa.chunked_array([], pa.date32()),
}
NUMBERS = pa.chunked_array([range(LARGE_ROWS)], pa.int64())


def _file(number: int = 1) -> DataFile:
    return DataFile(
        id=number, path=f"/lake/{number}.parquet", record_count=LARGE_ROWS, file_size_bytes=1, row_id_start=0,
        begin_snapshot=1, end_snapshot=None, max_snapshot=None, mapping_id=None,
    )  # fmt: skip


def _stored(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    ColumnFiles(tmp_path / "cache", 1 << 20).write("key", COLUMNS[name])
    found = ColumnFiles(tmp_path / "cache", 1 << 20).read("key")
    assert found is not None
    assert found.type == COLUMNS[name].type
    assert found.to_pylist() == COLUMNS[name].to_pylist()


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    assert ColumnFiles(tmp_path, 1 << 20).read("key") is None


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"\0" * 4096], ids=["empty", "cut", "zeros"])
def test_a_damaged_file_is_read_anew(tmp_path: Path, content: bytes) -> None:
    files = ColumnFiles(tmp_path, 1 << 20)
    files.write("key", NUMBERS)
    (path,) = _stored(tmp_path)
    path.write_bytes(content)
    assert files.read("key") is None
    assert not path.exists()


def test_what_another_process_removed_is_gone_although_it_is_mapped(tmp_path: Path) -> None:
    files = ColumnFiles(tmp_path, 1 << 20)
    files.write("key", NUMBERS)
    found = files.read("key")
    assert files.read("key") is found
    (path,) = _stored(tmp_path)
    path.unlink()
    assert files.read("key") is None
    assert files.read("key") is None
    assert found is not None
    assert found.equals(NUMBERS)


def test_only_so_many_columns_stay_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_cache, "_MAPPED", 2)
    files = ColumnFiles(tmp_path, 1 << 30)
    for number in range(4):
        files.write(f"key_{number}", NUMBERS)
    first = files.read("key_0")
    for number in (1, 0, 2, 0):
        files.read(f"key_{number}")
    assert files.read("key_0") is first
    for number in (1, 2, 3):
        files.read(f"key_{number}")
    again = files.read("key_0")
    assert again is not first
    assert again == first


def test_the_columns_that_were_not_used_for_longest_go_first(tmp_path: Path) -> None:
    size = NUMBERS.nbytes
    files = ColumnFiles(tmp_path, 16 * size)
    for number in range(12):
        files.write(f"key_{number}", NUMBERS)
        for path in _stored(tmp_path):
            if path.stem == f"key_{number}":
                os.utime(path, (number, number))
    assert files.read("key_0") is not None
    for number in range(12, 24):
        files.write(f"key_{number}", NUMBERS)
    kept = {path.stem for path in _stored(tmp_path)}
    assert sum(path.stat().st_size for path in _stored(tmp_path)) <= 16 * size
    assert "key_0" in kept
    assert "key_1" not in kept
    assert "key_23" in kept


def test_a_column_that_would_take_much_of_the_space_is_not_kept(tmp_path: Path) -> None:
    files = ColumnFiles(tmp_path, 4 * NUMBERS.nbytes)
    files.write("key", NUMBERS)
    assert files.read("key") is None


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    files = ColumnFiles(tmp_path, 1 << 20)
    files.write("first", NUMBERS)
    (path,) = _stored(tmp_path)
    left, fresh = path.with_name(".key.1.2"), path.with_name(".key.3.4")
    left.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(left, (1, 1))
    ColumnFiles(tmp_path, 1 << 20).write("second", NUMBERS)
    assert not left.exists()
    assert fresh.exists()


def test_files_of_an_earlier_start_of_the_machine_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = tmp_path / "boot_id"
    monkeypatch.setattr(file_cache, "_BOOT_ID", boot)
    boot.write_text("first\n")
    folder = tmp_path / "cache"
    ColumnFiles(folder, 1 << 20).write("key", NUMBERS)
    boot.write_text("second\n")
    os.utime(folder / "first", (1, 1))
    assert ColumnFiles(folder, 1 << 20).read("key") is None
    assert not (folder / "first").exists()


def test_columns_are_kept_where_the_start_of_the_machine_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_cache, "_BOOT_ID", tmp_path / "none")
    ColumnFiles(tmp_path / "cache", 1 << 20).write("key", NUMBERS)
    assert ColumnFiles(tmp_path / "cache", 1 << 20).read("key") == NUMBERS


def test_a_folder_that_cannot_be_used_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    cache = FileCache(1 << 20, ColumnFiles(tmp_path / "cache", 1 << 20))
    assert cache.column(_file(), 0, LARGE_ROWS, ("n", "int64"), lambda: NUMBERS) == NUMBERS


def test_a_large_column_is_read_once_by_all_refreshes(tmp_path: Path) -> None:
    reads: list[int] = []

    def read() -> pa.ChunkedArray:
        reads.append(1)
        return NUMBERS

    for _ in range(3):
        cache = FileCache(0, ColumnFiles(tmp_path, 1 << 20))
        assert cache.column(_file(), 0, LARGE_ROWS, ("n", "int64"), read) == NUMBERS
    assert len(reads) == 1
    cache = FileCache(0, ColumnFiles(tmp_path, 1 << 20))
    others = [(_file(2), 0, ("n", "int64")), (_file(), 1, ("n", "int64")), (_file(), 0, ("m", "int64"))]
    others.append((_file(), 0, ("n", "int32")))
    for file, group, source in others:
        cache.column(file, group, LARGE_ROWS, source, read)
    assert len(reads) == 5


def test_small_columns_are_kept_in_memory_up_to_the_limit(tmp_path: Path) -> None:
    small = pa.chunked_array([range(100)], pa.int64())
    reads: list[int] = []

    def read() -> pa.ChunkedArray:
        reads.append(1)
        return small

    for limit, expected in ((1 << 20, 1), (0, 3)):
        reads.clear()
        cache = FileCache(limit, ColumnFiles(tmp_path, 1 << 20))
        for _ in range(3):
            assert cache.column(_file(), 0, 100, ("n", "int64"), read) == small
        assert len(reads) == expected
    assert not _stored(tmp_path)
