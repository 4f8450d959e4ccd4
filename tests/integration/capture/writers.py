"""Application processes that write at random, in every way that PostgreSQL knows; run as a script."""

import random
import signal
import sys
import time

import psycopg

SCHEMA = """
CREATE TABLE account (id int PRIMARY KEY, owner text, balance numeric(12, 2) NOT NULL, touched timestamptz);
CREATE TABLE entry (account int, amount numeric(12, 2), note text);
CREATE TABLE reading (at date NOT NULL, sensor int, value float8) PARTITION BY RANGE (at);
CREATE TABLE reading_1 PARTITION OF reading FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE reading_2 PARTITION OF reading FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
CREATE TABLE child (id int PRIMARY KEY, account int REFERENCES account ON DELETE CASCADE ON UPDATE CASCADE);
"""
TABLES = ("account", "entry", "reading", "child")


def copy_in(cursor, rng, key):
    with cursor.copy("COPY entry FROM STDIN") as copy:
        for _ in range(rng.randrange(20)):
            copy.write_row((key, 1, rng.choice(["a", None])))


def truncate(cursor, rng, key):
    if rng.random() < 0.04:
        names = ["entry", "reading_2", "reading", "account CASCADE"]
        cursor.execute(f"TRUNCATE {rng.choice(names)}")


STATEMENTS = (
    "INSERT INTO account SELECT i, 'o' || i, i, now() FROM generate_series(%(k)s::int, %(k)s + 4) i"
    " ON CONFLICT (id) DO UPDATE SET balance = account.balance + 1",
    "UPDATE account SET balance = balance + 1 WHERE id %% 7 = %(k)s %% 7",
    "DELETE FROM account WHERE id = %(k)s",
    "UPDATE account SET id = id + 1000 WHERE id = %(k)s",
    "UPDATE account SET owner = owner WHERE id < %(k)s",
    "DELETE FROM entry WHERE ctid IN (SELECT ctid FROM entry LIMIT 3)",
    "INSERT INTO reading VALUES (date '2024-01-07' + 31 * (%(k)s %% 2), %(k)s, %(k)s / 3.0)",
    "UPDATE reading SET at = CASE WHEN at < '2024-02-01' THEN at + 31 ELSE at - 31 END WHERE sensor = %(k)s",
    "INSERT INTO reading_1 VALUES ('2024-01-02', %(k)s, 'NaN'), ('2024-01-02', %(k)s, '-0')",
    "DELETE FROM reading_2 WHERE sensor %% 5 = %(k)s %% 5",
    "INSERT INTO child SELECT %(k)s, id FROM account ORDER BY id LIMIT 1 ON CONFLICT DO NOTHING",
    "MERGE INTO account a USING (VALUES (%(k)s::int), (%(k)s + 1)) v(id) ON a.id = v.id WHEN MATCHED THEN DELETE"
    " WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'merged', 0, NULL)",
    "WITH gone AS (DELETE FROM entry WHERE account = %(k)s RETURNING *)"
    " INSERT INTO entry SELECT account + 1, amount, note FROM gone",
    "INSERT INTO entry VALUES (%(k)s, 1.5, NULL), (%(k)s, 1.5, NULL)",
    copy_in,
    truncate,
)


def one_statement(cursor, rng):
    statement, key = rng.choice(STATEMENTS), rng.randrange(60)
    if callable(statement):
        statement(cursor, rng, key)
    else:
        cursor.execute(statement, {"k": key})


def transaction(connection, rng):
    with connection.cursor() as cursor:
        if rng.random() < 0.2:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        for _ in range(rng.randrange(1, 6)):
            if rng.random() < 0.4:
                cursor.execute("SAVEPOINT s")
                one_statement(cursor, rng)
                cursor.execute("ROLLBACK TO s" if rng.random() < 0.5 else "RELEASE s")
            else:
                one_statement(cursor, rng)
            if rng.random() < 0.1:
                time.sleep(rng.random() * 0.3)
    if rng.random() < 0.25:
        connection.rollback()
    else:
        connection.commit()


def main(dsn, seed):
    """Write until the process is told to terminate; the transaction at hand is finished first."""
    rng = random.Random(seed)
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    with psycopg.connect(dsn) as connection:
        while not stopped:
            try:
                transaction(connection, rng)
            except (
                psycopg.errors.IntegrityError,
                psycopg.errors.DeadlockDetected,
                psycopg.errors.SerializationFailure,
            ):
                connection.rollback()
            time.sleep(rng.random() * 0.02)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
