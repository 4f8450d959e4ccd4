import pytest

from pgtrickle_assets.errors import ServiceError
from pgtrickle_assets.services import duckdb as service


def test_extensions_are_loaded_and_nothing_can_be_fetched():
    import duckdb

    with service.connect() as connection:
        loaded = connection.execute("SELECT extension_name FROM duckdb_extensions() WHERE loaded").fetchall()
        assert {name for (name,) in loaded} >= {"ducklake", "postgres_scanner", "httpfs"}
        assert connection.execute("SELECT current_setting('autoinstall_known_extensions')").fetchone() == (False,)
        with pytest.raises(duckdb.Error):
            connection.execute("SELECT * FROM sqlite_scan('x', 'y')")


def test_the_session_is_in_utc():
    with service.connect(extensions=()) as connection:
        row = connection.execute("SELECT TIMESTAMPTZ '2024-07-01 12:00:00+00'::varchar").fetchone()
        assert row == ("2024-07-01 12:00:00+00",)


def test_a_missing_wheel_is_named_with_its_version():
    import duckdb

    with pytest.raises(ServiceError, match=rf"pip install duckdb-extension-no-such=={duckdb.__version__}"):
        service.connect(extensions=["no_such"])


def test_a_wheel_for_another_version_is_refused(monkeypatch):
    import duckdb

    monkeypatch.setattr(duckdb, "__version__", "9.9.9")
    with pytest.raises(ServiceError, match=r"made for DuckDB v1\.5\.5, installed is v9\.9\.9"):
        service.extension_path("ducklake")


def test_settings_can_be_given():
    with service.connect(extensions=(), config={"threads": 1}) as connection:
        assert connection.execute("SELECT current_setting('threads')").fetchone() == (1,)
