# ruff: noqa: E501
"""Tables that the corpus reads, with NULLs, duplicates, ties and awkward values."""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle_assets.query.types import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    JSON,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    ColumnSchema,
    ColumnType,
    TableName,
    TableSchema,
    decimal,
    list_of,
)

_KINDS: dict[str, ColumnType] = {
    "int2": INT16,
    "int4": INT32,
    "int8": INT64,
    "float4": FLOAT32,
    "float8": FLOAT64,
    "text": VARCHAR,
    "bool": BOOLEAN,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMPTZ,
    "uuid": UUID,
    "jsonb": JSON,
    "int4[]": list_of(INT32),
    "text[]": list_of(VARCHAR),
}


@dataclass(frozen=True)
class SampleTable:
    """A table: column definitions in PostgreSQL's words, its key, and its rows as SQL."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    rows: str

    def schema(self) -> TableSchema:
        columns = tuple(ColumnSchema(n, column_type(kind), n not in self.key) for n, kind in self.columns)
        return TableSchema(TableName("public", self.name), columns, self.key)

    def create(self) -> str:
        parts = [f'"{name}" {kind}' for name, kind in self.columns]
        if self.key:
            parts.append(f"PRIMARY KEY ({', '.join(self.key)})")
        return f'CREATE TABLE "{self.name}" ({", ".join(parts)})'


def column_type(kind: str) -> ColumnType:
    """The type of a column definition."""
    if kind.startswith("numeric("):
        precision, scale = kind[8:-1].split(",")
        return decimal(int(precision), int(scale))
    return _KINDS[kind]


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((part.split()[0], part.split()[1]) for part in text.split("; "))


TABLES = (
    SampleTable(
        "t",
        _columns(
            "id int4; a int4; b int8; c int2; n numeric(10,2); m numeric(12,4); f float8; r float4; s text; d date; "
            "ts timestamp; tz timestamptz; bo bool; k text"
        ),
        ("id",),
        """
        (1, 10, 100, 1, 1.50, 0.3333, 0.1, 1.5, 'apple', '2024-01-31', '2024-01-31 10:20:30.123456', '2024-01-31 23:59:59+00', true, 'x'),
        (2, 20, 9000000000, 2, -2.25, 12.0005, -2.5, -0.25, 'Banana', '2024-02-29', '2024-02-29 00:00:00', '2024-03-31 01:30:00+00', false, 'y'),
        (3, NULL, 300, -3, 0.00, NULL, 1e20, 3.25, '', '2023-12-31', '2023-12-31 23:59:59.999999', '2024-07-01 12:00:00+00', NULL, 'x'),
        (4, -7, -400, NULL, 99999.99, 12345678.9999, NULL, NULL, NULL, NULL, NULL, NULL, true, NULL),
        (5, 10, 100, 1, 2.50, 0.0001, 'NaN', 0, 'äpfel_50%', '2024-01-31', '2024-01-31 10:20:30.123456', '2024-10-27 01:00:00+00', false, 'y'),
        (6, 7, NULL, 4, NULL, 7.0000, 2.5, 2.5, '  pad  ', '2000-02-29', '1999-12-31 12:34:56.5', '1999-12-31 12:34:56+00', NULL, 'z'),
        (7, 0, 0, 0, -0.01, -1.5000, -0.0, -1.5, 'a.b.c', '2024-12-30', '2024-12-30 08:00:00', '2025-01-01 00:00:00+00', true, 'x'),
        (8, 2147483647, 9223372036854775807, 32767, 0.01, 0.5000, 123456.789, 100.5, 'apple', '2021-01-03', '2021-01-03 18:45:00', '2021-01-03 18:45:00+00', false, NULL)
        """,
    ),
    SampleTable(
        "u",
        _columns("id int4; tid int4; k text; v int4; p numeric(15,2)"),
        ("id",),
        """
        (1, 1, 'x', 5, 10.00), (2, 1, 'y', 7, 20.50), (3, 2, 'x', 5, 0.10), (4, NULL, 'x', 1, 3.33), (5, 3, NULL, NULL, NULL),
        (6, 9, 'z', 4, 100000.01), (7, 2, 'y', 9, 7.77), (8, 5, 'y', 5, 1.00)
        """,
    ),
    SampleTable(
        "w",
        _columns("g text; x int4; y int4"),
        (),
        "('a', 1, 1), ('a', 1, 1), ('a', 2, NULL), ('b', NULL, 3), ('b', NULL, 3), (NULL, 4, 4), (NULL, 4, 5), ('c', 0, NULL)",
    ),
    SampleTable(
        "j",
        _columns("id int4; doc jsonb; arr int4[]; tags text[]; uid uuid"),
        ("id",),
        """
        (1, '{"name": "n1", "age": 30, "tags": ["p", "q"], "in": {"deep": true}}', '{3,1,2}', '{a,b}', '00000000-0000-0000-0000-0000000000ff'),
        (2, '{"name": null, "age": 5, "tags": []}', '{}', '{}', 'ffffffff-0000-0000-0000-000000000000'),
        (3, '{"age": "x", "tags": ["r"]}', NULL, NULL, NULL),
        (4, NULL, '{7,NULL,7}', '{"c d",NULL}', '00000000-0000-0000-0000-000000000001')
        """,
    ),
    SampleTable("e", _columns("id int4; v int4; n numeric(10,2)"), ("id",), ""),
    SampleTable(
        "o",
        _columns("id int4; cid int4; day date; amount numeric(12,2)"),
        ("id",),
        """
        (1, 1, '2024-01-01', 10.00), (2, 1, '2024-01-05', 30.00), (3, 2, '2024-01-03', 20.00), (4, 2, '2024-02-01', 20.00),
        (5, 3, '2024-02-10', 5.00), (6, NULL, '2024-02-11', 7.00), (7, 1, '2024-01-01', 10.00)
        """,
    ),
    SampleTable(
        "cu", _columns("id int4; name text; city text"), ("id",),
        "(1, 'Ann', 'Rome'), (2, 'Bob', 'Oslo'), (3, 'Cid', NULL), (4, 'Dan', 'Rome')",
    ),
)  # fmt: skip
BY_NAME = {table.name: table for table in TABLES}
