import pytest

from pgtrickle_assets.control.scrub import MAX_LENGTH, scrub


@pytest.mark.parametrize(
    "text",
    [
        "connection to postgresql://user:hunter2@host:5432/db failed",
        "postgresql://user:p@hunter2@host/db",
        "host=h user=u password=hunter2 dbname=d",
        "host=h password='hunter2 with blanks' dbname=d",
        "host=h password = 'it\\'s hunter2'",
        'password="hunter2"',
        "sc://localhost:15002/;token=hunter2",
        "sc://localhost:15002/;use_ssl=true;token=hunter2;user_id=me",
        "https://bucket.s3.amazonaws.com/x?X-Amz-Signature=hunter2&X-Amz-Date=1",
        "{'aws_secret_access_key': 'hunter2', 'region': 'eu'}",
        '{"secret": "hunter2"}',
        "CREATE SECRET s (TYPE s3, KEY_ID 'hunter2', SECRET 'hunter2')",
        "Authorization: Bearer hunter2",
        "PGPASSWORD=hunter2 psql",
        "spark.hadoop.fs.s3a.secret.key=hunter2",
        "spark.hadoop.fs.s3a.access.key=hunter2",
    ],
)
def test_no_secret_survives(text):
    assert "hunter2" not in scrub(text)


@pytest.mark.parametrize(
    "text",
    [
        'duplicate key value violates unique constraint "ducklake_snapshot_pkey"',
        'relation "main.ducklake_table" does not exist',
        "could not connect to server at 127.0.0.1:5432",
        "token expired",
        'column "password_hash" does not exist',
        'column "token" of relation "x" does not exist',
        "postgresql://host/db is unreachable",
        "s3://bucket/path/file.parquet: 503 Slow Down",
    ],
)
def test_what_helps_the_reader_stays(text):
    assert scrub(text) == text


def test_the_user_and_the_host_stay_readable():
    assert scrub("postgresql://user:hunter2@host:5432/db") == "postgresql://user:***@host:5432/db"


def test_known_secrets_go_wherever_they_stand():
    assert scrub("bad thing: xyzzy9", secrets=["xyzzy9", ""]) == "bad thing: ***"


def test_a_secret_that_contains_another_goes_whole():
    assert scrub("abcdef", secrets=["abc", "abcdef"]) == "***"


def test_text_is_fit_to_be_stored():
    text = scrub("a\0b" + "x" * 10_000)
    assert text.startswith("ab")
    assert len(text) == MAX_LENGTH
