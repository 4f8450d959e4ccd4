"""Who cannot be reached, and why, in one line without the password."""

import psycopg
import pytest

from pgtrickle_assets.capture.postgres import PostgresSource
from pgtrickle_assets.errors import ConfigurationError, SourceError, SourceUnavailableError, TransientError
from pgtrickle_assets.query.types import TableName

SECRET = "s3cr3t"


def failure(dsn):
    with pytest.raises((SourceError, ConfigurationError)) as error:
        PostgresSource("s", dsn).describe()
    text = str(error.value)
    assert SECRET not in text
    assert "\n" not in text
    assert error.value.hint
    return error.value


def changed(dsn, **parts):
    return psycopg.conninfo.make_conninfo(dsn, **parts)


def test_nobody_listens(database):
    error = failure(changed(database, port="1", password=SECRET))
    assert isinstance(error, SourceUnavailableError)
    assert isinstance(error, TransientError)
    assert "127.0.0.1:1" in str(error)


def test_unknown_host(database):
    assert isinstance(failure(changed(database, host="nowhere.invalid", password=SECRET)), SourceUnavailableError)


def test_missing_database(database):
    error = failure(changed(database, dbname="no such db"))
    assert "no such database" in str(error)
    assert not isinstance(error, TransientError)


@pytest.mark.parametrize("user", ["postgres", "nobody_here"])
def test_wrong_password_or_user(database, user):
    error = failure(changed(database, user=user, password=SECRET))
    assert "login refused" in str(error)
    assert f"as user {user!r}" in str(error)


def test_a_malformed_connection_string_is_not_repeated():
    assert isinstance(failure(f"postgresql://user:{SECRET}@host:port:what/db"), ConfigurationError)


def test_a_connection_that_breaks_in_the_middle_is_unavailable(database):
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("CREATE TABLE t (id int)")
        name = TableName("public", "t")
        source = PostgresSource("s", database)
        source.install([name])
        with source.open_batch(None, [name], [name]) as batch:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgtrickle capture'"
            )
            with pytest.raises(SourceUnavailableError):
                list(batch.content(name))
