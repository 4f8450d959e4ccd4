from __future__ import annotations

import errno
import os

import pytest

from pgtrickle_assets.errors import (
    ConfigurationError,
    LakeError,
    LakeHistoryExpiredError,
    StorageUnavailableError,
    TransientError,
)
from pgtrickle_assets.lake.storage import (
    filesystem,
    reads_natively,
    spark_options,
    spark_path,
    storage_error,
    storage_for,
)


def test_a_path_is_taken_literally(tmp_path):
    for prefix in ("", "file://"):
        path = f"{prefix}{tmp_path}/a b%20[c]/k=é%2F/f.parquet"
        storage = storage_for(path)
        with storage.open_output(path) as sink:
            sink.write(b"x")
        storage.make_durable(path)
        assert (tmp_path / "a b%20[c]" / "k=é%2F" / "f.parquet").exists()
        assert storage.size(path) == 1
        assert [(file.path, file.size) for file in storage.files(f"{prefix}{tmp_path}")] == [(path, 1)]
        assert storage.delete(path)
        assert not storage.delete(path)
        assert not storage.exists(path)
        with pytest.raises(FileNotFoundError):
            storage.size(path)


def test_a_missing_directory_has_no_files(tmp_path):
    assert list(storage_for(str(tmp_path)).files(f"{tmp_path}/none")) == []


def test_unknown_options_and_schemes_are_named():
    with pytest.raises(ConfigurationError, match="endpont"):
        storage_for("s3://b/k", {"endpont": "x"})
    with pytest.raises(ConfigurationError, match="ftp"):
        storage_for("ftp://x/y")
    with pytest.raises(ConfigurationError, match="request_timeout"):
        storage_for("s3://b/k", {"request_timeout": "soon"})
    with pytest.raises(ConfigurationError, match="account_name"):
        storage_for("az://c/k")


def test_secrets_are_not_in_errors():
    with pytest.raises(ConfigurationError) as raised:
        storage_for("s3://b/k", {"secret_access_key": "hush", "nonsense": "1"})
    assert "hush" not in str(raised.value)


def test_s3_paths_have_bucket_and_key(monkeypatch):
    monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION", raising=False)
    options = {"endpoint": "127.0.0.1:9000", "use_ssl": "false", "access_key_id": "a", "secret_access_key": "b"}
    files, inner = filesystem("s3://bucket/a%20b/c.parquet", options)
    assert (files.type_name, inner) == ("s3", "bucket/a%20b/c.parquet")
    assert os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] == "when_required"


def test_spark_reads_object_stores_natively_only_when_told():
    assert reads_natively("/data/x")
    assert reads_natively("file:///data/x")
    assert not reads_natively("s3://b/x")
    assert reads_natively("s3://b/x", {"spark_reader": "native"})
    assert not reads_natively("/data/x", {"spark_reader": "arrow"})
    with pytest.raises(ConfigurationError, match="spark_reader"):
        reads_natively("/x", {"spark_reader": "maybe"})


def test_spark_paths_name_hadoops_file_systems():
    assert spark_path("/a b/c") == "file:///a b/c"
    assert spark_path("s3://b/k") == "s3a://b/k"
    assert spark_path("gcs://b/k") == "gs://b/k"
    assert spark_path("az://c/k/x", {"account_name": "acc"}) == "abfss://c@acc.dfs.core.windows.net/k/x"


def test_storage_errors_are_told_apart_by_number_and_type():
    cases = [
        (FileNotFoundError(errno.ENOENT, "x"), LakeHistoryExpiredError, False),
        (OSError(errno.ENOSPC, "x"), LakeError, False),
        (PermissionError(errno.EACCES, "x"), LakeError, False),
        (OSError("AWS Error SLOW_DOWN during PutObject"), StorageUnavailableError, True),
        (OSError(errno.ECONNRESET, "x"), StorageUnavailableError, True),
    ]
    for error, kind, transient in cases:
        found = storage_error(error, "s3://b/t/")
        assert type(found) is kind
        assert isinstance(found, TransientError) is transient
        assert "s3://b/t/" in str(found)


def test_spark_gets_the_same_options_with_each_read_and_none_for_a_disk():
    options = {"endpoint": "http://127.0.0.1:9000", "access_key_id": "k", "secret_access_key": "s", "max_attempts": "2"}
    assert spark_options("s3://b/x", options) == {
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": "k",
        "fs.s3a.secret.key": "s",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "fs.s3a.connection.establish.timeout": "5s",
        "fs.s3a.connection.request.timeout": "30s",
        "fs.s3a.attempts.maximum": "2",
    }
    assert spark_options("/lake/x", options) == spark_options("gs://b/x", {}) == {}
    assert spark_options("s3://b/x", {"session_token": "t"})["fs.s3a.aws.credentials.provider"].endswith(
        "TemporaryAWSCredentialsProvider"
    )
    assert "fs.s3a.aws.credentials.provider" not in spark_options("s3://b/x", {})
