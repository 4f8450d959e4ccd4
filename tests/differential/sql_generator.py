"""Random PostgreSQL queries, tables and batches, as hypothesis strategies that shrink.

A query is put together from text: every operator may stand on every other, to any depth. Where PostgreSQL leaves the
answer open (the order of ties), the text does not. Values come from small domains: NULLs, duplicates and skew are the
rule; one table has a key, two have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from pgtrickle_assets.query.types import (
    BOOLEAN,
    DATE,
    FLOAT64,
    INT16,
    INT32,
    VARCHAR,
    ColumnSchema,
    ColumnType,
    TableName,
    TableSchema,
    decimal,
    list_of,
)

Row = tuple[Any, ...]
_DECIMAL, _NUMERIC, _INTS = decimal(6, 2), decimal(38, 18), list_of(INT32)
_SQL_TYPES = {
    INT16: "smallint", INT32: "int", VARCHAR: "text", _DECIMAL: "numeric(6,2)", _NUMERIC: "numeric", FLOAT64: "float8",
    BOOLEAN: "boolean", DATE: "date", _INTS: "int[]",
}  # fmt: skip
_DOMAINS: dict[ColumnType, tuple[Any, ...]] = {
    INT16: (None, 0, 1, 3),
    INT32: (None, 0, 1, 1, 2, -1),
    VARCHAR: (None, "a", "a", "", "b"),
    _DECIMAL: (None, Decimal("0.00"), Decimal("1.50"), Decimal("-2.25"), Decimal("9.99")),
    _NUMERIC: (None, Decimal("1.0"), Decimal("2.50"), Decimal("-0.125")),
    FLOAT64: (None, 0.0, -0.0, 1.5, float("nan"), -2.0),
    BOOLEAN: (None, True, False),
    DATE: (None, "2024-01-01", "2024-01-02", "2024-02-29"),
    _INTS: (None, [], [1], [1, 2, None]),
}


def _table(name: str, columns: str, key: tuple[str, ...] = ()) -> TableSchema:
    kinds = {text: kind for kind, text in _SQL_TYPES.items()}
    parts = [part.strip().split(" ", 1) for part in columns.split(";")]
    found = tuple(ColumnSchema(column, kinds[kind], column not in key) for column, kind in parts)
    return TableSchema(TableName("public", name), found, key)


TABLES = {
    table.name.name: table
    for table in (
        _table("t1", "k int; g text; v int; d numeric(6,2); x float8; b boolean", ("k",)),
        _table("t2", "g text; v int; d numeric(6,2); e date; a int[]"),
        _table("t3", "v int; g text; s smallint; n numeric; b boolean"),
    )
}


def create_statement(table: TableSchema) -> str:
    """The table in PostgreSQL."""
    columns = ", ".join(f"{column.name} {_SQL_TYPES[column.type]}" for column in table.columns)
    key = f", PRIMARY KEY ({', '.join(table.key)})" if table.key else ""
    return f"CREATE TABLE {table.name.name} ({columns}{key})"


@dataclass(frozen=True)
class Column:
    """An output column: its name and what kind of value it has."""

    name: str
    kind: str


@dataclass(frozen=True)
class Query:
    """A SELECT statement and its columns, named differently."""

    sql: str
    columns: tuple[Column, ...]

    def of(self, *kinds: str) -> list[Column]:
        return [column for column in self.columns if column.kind in kinds]


_KINDS = {
    INT16: "int", INT32: "int", VARCHAR: "text", _DECIMAL: "numeric", _NUMERIC: "bare", FLOAT64: "float",
    BOOLEAN: "bool", DATE: "date", _INTS: "ints",
}  # fmt: skip
COMPARABLE = ("int", "text", "numeric", "bare", "quotient", "float", "bool", "date", "big")
NUMBERS = ("int", "big", "numeric", "bare", "quotient", "float")
_CONSTANTS = {
    "int": ("0", "1", "2"), "big": ("0", "1"), "numeric": ("0", "1.5", "9.99"), "bare": ("1", "2.5"),
    "quotient": ("0", "1.5"), "float": ("0", "1.5"), "text": ("'a'", "''", "'b'"), "bool": ("true",),
    "date": ("DATE '2024-01-02'",),
}  # fmt: skip
OPERATORS = (
    "where", "select", "inner", "left", "right", "full", "using", "exists", "not_in", "quantified", "scalar",
    "group", "grouping_sets", "distinct", "distinct_on", "set_operation", "window", "top", "lateral_top", "unnest",
    "series", "common_table",
)  # fmt: skip


@dataclass
class Builder:
    """Draws one query."""

    draw: Any
    names: int = 0
    scans: int = 0
    used: set[str] = field(default_factory=set)

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def chance(self, one_in: int = 2) -> bool:
        return self.draw(st.integers(1, one_in)) == one_in

    def some(self, options: Sequence[Any], least: int, most: int) -> list[Any]:
        count = min(self.draw(st.integers(least, max(least, most))), len(options))
        return list(self.draw(st.permutations(list(options))))[:count]

    def fresh(self, prefix: str = "c") -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def query(self, depth: int) -> Query:
        if depth <= 0 or self.scans >= 5:
            return self.scan()
        operator = self.pick(["scan", *OPERATORS])
        return self.scan() if operator == "scan" else self.operator(operator, depth)

    def operator(self, name: str, depth: int) -> Query:
        self.used.add(name)
        return getattr(self, name)(depth)

    def scan(self) -> Query:
        self.scans += 1
        table = TABLES[self.pick(sorted(TABLES))]
        columns = self.some(table.columns, 2, len(table.columns))
        named = [(column.name, Column(self.fresh(), _KINDS[column.type])) for column in columns]
        return Query(
            f"SELECT {', '.join(f'{source} AS {c.name}' for source, c in named)} FROM {table.name.name}",
            tuple(column for _, column in named),
        )

    def renamed(self, columns: Sequence[Column], alias: str = "") -> tuple[str, tuple[Column, ...]]:
        """A SELECT list that gives the columns new names."""
        fresh = [Column(self.fresh(), column.kind) for column in columns]
        prefix = f"{alias}." if alias else ""
        items = [f"{prefix}{old.name} AS {new.name}" for old, new in zip(columns, fresh, strict=True)]
        return ", ".join(items), tuple(fresh)

    def comparison(self, columns: Sequence[Column]) -> str:
        fitting = [column for column in columns if column.kind in COMPARABLE]
        if not fitting:
            return f"{columns[0].name} IS NULL"
        column = self.pick(fitting)
        form = self.pick(["constant", "constant", "null", "pair"])
        if form == "null":
            return f"{column.name} IS {self.pick(['', 'NOT '])}NULL"
        others = [c for c in fitting if c.kind == column.kind and c != column]
        if form == "pair" and others:
            operator = self.pick(["=", "<", "<>", "IS NOT DISTINCT FROM", "IS DISTINCT FROM"])
            return f"{column.name} {operator} {self.pick(others).name}"
        if column.kind == "bool":
            return self.pick([column.name, f"{column.name} IS NOT TRUE"])
        return f"{column.name} {self.pick(['=', '<', '>=', '<>'])} {self.pick(_CONSTANTS[column.kind])}"

    def predicate(self, columns: Sequence[Column]) -> str:
        form = self.pick(["plain", "plain", "not", "or", "and"])
        first = self.comparison(columns)
        if form == "plain":
            return first
        if form == "not":
            return f"NOT ({first})"
        return f"({first} {form.upper()} {self.comparison(columns)})"

    def where(self, depth: int) -> Query:
        child = self.query(depth - 1)
        return Query(f"SELECT * FROM ({child.sql}) q WHERE {self.predicate(child.columns)}", child.columns)

    def expression(self, columns: Sequence[Column]) -> tuple[str, str]:
        column = self.pick(columns)
        name, kind = column.name, column.kind
        forms: list[tuple[str, str]] = [(name, kind)]
        if kind in ("int", "big", "numeric", "float", "bare"):
            forms += [(f"{name} + 1", kind), (f"-{name}", kind), (f"ABS({name})", kind)]
        if kind == "int":
            forms += [(f"{name} / 2", kind), (f"{name} % 2", kind), (f"{name} * 1.5", "numeric")]
        if kind in ("numeric", "bare", "quotient"):
            forms += [(f"ROUND({name}, 1)", "numeric"), (f"{name} * 2", kind)]
        if kind == "numeric":
            forms += [(f"{name} / 3", "quotient")]
        if kind == "text":
            forms += [(f"{name} || 'z'", kind), (f"COALESCE({name}, 'n')", kind), (f"NULLIF({name}, '')", kind)]
            forms += [(f"LENGTH({name})", "int"), (f"UPPER({name})", kind)]
        if kind == "date":
            forms += [(f"{name} + 1", kind), (f"EXTRACT(MONTH FROM {name})::int", "int")]
            forms += [(f"DATE_TRUNC('month', {name})::date", kind)]
        if kind == "ints":
            forms = [(f"CARDINALITY({name})", "int")]
        if kind in COMPARABLE:
            forms += [(f"CASE WHEN {self.predicate(columns)} THEN {name} END", kind)]
            forms += [(f"({self.predicate(columns)})", "bool")]
        return self.pick(forms)

    def select(self, depth: int) -> Query:
        child = self.query(depth - 1)
        items = [(*self.expression(child.columns), self.fresh()) for _ in range(self.draw(st.integers(1, 4)))]
        text = ", ".join(f"{sql} AS {name}" for sql, _, name in items)
        return Query(f"SELECT {text} FROM ({child.sql}) q", tuple(Column(name, kind) for _, kind, name in items))

    def pairs(self, left: Query, right: Query) -> list[tuple[Column, Column]]:
        return [(a, b) for a in left.of(*COMPARABLE) for b in right.columns if a.kind == b.kind]

    def _join(self, word: str, depth: int) -> Query:
        left, right = self.query(depth - 1), self.query(depth - 2)
        pairs = self.pairs(left, right)
        columns = (*left.columns, *right.columns)
        if not pairs:
            return Query(f"SELECT * FROM ({left.sql}) l CROSS JOIN ({right.sql}) r", columns)
        parts: list[str] = []
        for number in range(self.draw(st.integers(1, 2))):
            a, b = self.pick(pairs)
            operators = ["=", "=", "=", "IS NOT DISTINCT FROM", "<", "<>"]
            operator = "=" if word == "FULL" and number == 0 else self.pick(operators)
            parts.append(f"{a.name} {operator} {b.name}" if self.chance() else f"{b.name} {operator} {a.name}")
        if word != "FULL" and self.chance(4):
            parts.append(self.predicate(self.pick([left, right]).columns))
        return Query(f"SELECT * FROM ({left.sql}) l {word} JOIN ({right.sql}) r ON {' AND '.join(parts)}", columns)

    def inner(self, depth: int) -> Query:
        return self._join("INNER", depth)

    def left(self, depth: int) -> Query:
        return self._join("LEFT", depth)

    def right(self, depth: int) -> Query:
        return self._join("RIGHT", depth)

    def full(self, depth: int) -> Query:
        return self._join("FULL", depth)

    def using(self, depth: int) -> Query:
        left, right = self.query(depth - 1), self.query(depth - 2)
        pairs = self.pairs(left, right)
        if not pairs:
            return left
        a, b = self.pick(pairs)
        rest = tuple(column for column in right.columns if column != b)
        items = ", ".join([f"{b.name} AS {a.name}", *(column.name for column in rest)])
        word = self.pick(["", "LEFT ", "FULL ", "RIGHT "])
        sql = f"SELECT * FROM ({left.sql}) l {word}JOIN (SELECT {items} FROM ({right.sql}) q) r USING ({a.name})"
        ordered = (a, *(column for column in left.columns if column != a), *rest)
        return Query(sql, ordered)

    def _correlation(self, left: Query, right: Query) -> str:
        pairs = self.pairs(left, right)
        if not pairs or self.chance(6):
            return self.predicate(right.columns)
        a, b = self.pick(pairs)
        text = f"{b.name} {self.pick(['=', '=', '=', 'IS NOT DISTINCT FROM', '<'])} {a.name}"
        return f"{text} AND {self.predicate(right.columns)}" if self.chance(3) else text

    def _tested(self, left: Query, test: str) -> Query:
        if self.chance(3):
            test = f"{test} OR {self.comparison(left.columns)}"
        if self.chance(4):
            name = self.fresh()
            return Query(f"SELECT q.*, ({test}) AS {name} FROM ({left.sql}) q", (*left.columns, Column(name, "bool")))
        return Query(f"SELECT * FROM ({left.sql}) q WHERE {test}", left.columns)

    def exists(self, depth: int) -> Query:
        left, right = self.query(depth - 1), self.query(depth - 2)
        negated = self.pick(["", "NOT "])
        inner = f"SELECT 1 FROM ({right.sql}) s WHERE {self._correlation(left, right)}"
        return self._tested(left, f"{negated}EXISTS ({inner})")

    def not_in(self, depth: int) -> Query:
        left, right = self.query(depth - 1), self.query(depth - 2)
        pairs = self.pairs(left, right)
        if not pairs:
            return left
        chosen = [self.pick(pairs) for _ in range(self.draw(st.integers(1, 2)))]
        mine = ", ".join(a.name for a, _ in chosen)
        theirs = ", ".join(b.name for _, b in chosen)
        inner = f"SELECT {theirs} FROM ({right.sql}) s"
        if self.chance(4):
            inner += f" WHERE {self._correlation(left, right)}"
        subject = mine if len(chosen) == 1 else f"({mine})"
        return self._tested(left, f"{subject} {self.pick(['', 'NOT ', 'NOT '])}IN ({inner})")

    def quantified(self, depth: int) -> Query:
        left, right = self.query(depth - 1), self.query(depth - 2)
        pairs = self.pairs(left, right)
        if not pairs:
            return left
        a, b = self.pick(pairs)
        operator = self.pick(["=", "<>", "<", ">="])
        inner = f"SELECT {b.name} FROM ({right.sql}) s"
        return self._tested(left, f"{a.name} {operator} {self.pick(['ANY', 'ALL'])} ({inner})")

    def scalar(self, depth: int) -> Query:
        left, right = self.query(depth - 1), self.query(depth - 2)
        text, kind = self.aggregate(right)
        inner = f"SELECT {text} FROM ({right.sql}) s WHERE {self._correlation(left, right)}"
        name = self.fresh()
        return Query(f"SELECT q.*, ({inner}) AS {name} FROM ({left.sql}) q", (*left.columns, Column(name, kind)))

    def aggregate(self, child: Query) -> tuple[str, str]:
        """An aggregate call and the kind of its value."""
        column = self.pick(child.columns)
        name, kind = column.name, column.kind
        calls = [("COUNT(*)", "big"), (f"COUNT({name})", "big")]
        if kind in COMPARABLE:
            calls += [(f"COUNT(DISTINCT {name})", "big")]
        if kind in COMPARABLE and kind != "bool":
            calls += [(f"MIN({name})", kind), (f"MAX({name})", kind)]
            calls += [(f"PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY {name})", kind)]
            calls += [(f"MODE() WITHIN GROUP (ORDER BY {name})", kind)]
        if kind == "int":
            calls += [(f"SUM({name})", "big"), (f"AVG({name})", "quotient"), (f"SUM(DISTINCT {name})", "big")]
            calls += [(f"{self.pick(['VAR_POP', 'VAR_SAMP', 'STDDEV'])}({name})", "quotient")]
            calls += [(f"{self.pick(['BIT_AND', 'BIT_OR', 'BIT_XOR'])}({name})", "int")]
            calls += [(f"PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {name})", "float")]
            others = child.of("int", "numeric")
            statistic = self.pick(["COVAR_POP", "COVAR_SAMP", "REGR_SXX", "REGR_AVGX", "REGR_SLOPE"])
            calls += [(f"{statistic}({name}, {self.pick(others).name})", "float")]
        if kind in ("numeric", "bare"):
            calls += [(f"SUM({name})", kind), (f"AVG({name})", "quotient")]
        if kind in ("big", "quotient"):
            calls += [(f"SUM({name})", "numeric" if kind == "big" else kind)]
        if kind == "float":
            calls += [(f"SUM({name})", kind), (f"AVG({name})", kind)]
        if kind == "bool":
            calls += [(f"{self.pick(['BOOL_AND', 'BOOL_OR', 'EVERY'])}({name})", "bool")]
        if kind == "text":
            calls += [(f"STRING_AGG({name}, ',' ORDER BY {name} DESC)", "text")]
        text, result = self.pick(calls)
        if self.chance(5):
            text += f" FILTER (WHERE {self.predicate(child.columns)})"
        return text, result

    def _aggregates(self, child: Query) -> tuple[list[str], list[Column]]:
        items: list[str] = []
        columns: list[Column] = []
        for _ in range(self.draw(st.integers(1, 3))):
            text, kind = self.aggregate(child)
            columns.append(Column(self.fresh(), kind))
            items.append(f"{text} AS {columns[-1].name}")
        return items, columns

    def group(self, depth: int) -> Query:
        child = self.query(depth - 1)
        keys = self.some(child.of(*COMPARABLE), 0, 2)
        named, key_columns = self.renamed(keys) if keys else ("", ())
        items, columns = self._aggregates(child)
        sql = f"SELECT {', '.join([*([named] if keys else []), *items])} FROM ({child.sql}) q"
        if keys:
            sql += f" GROUP BY {', '.join(key.name for key in keys)}"
        if self.chance(4):
            sql += f" HAVING COUNT(*) {self.pick(['>', '<', '='])} {self.pick(['1', '2'])}"
        return Query(sql, (*key_columns, *columns))

    def grouping_sets(self, depth: int) -> Query:
        child = self.query(depth - 1)
        keys = self.some(child.of(*COMPARABLE), 1, 2)
        if not keys:
            return child
        named, key_columns = self.renamed(keys)
        items, columns = self._aggregates(child)
        listed = [key.name for key in keys]
        form = self.pick(["ROLLUP", "CUBE", "SETS"])
        sets = f"{form} ({', '.join(listed)})"
        if form == "SETS":
            sets = f"GROUPING SETS (({', '.join(listed)}), ({listed[-1]}), ())"
        level = Column(self.fresh(), "int")
        items.append(f"GROUPING({', '.join(listed)}) AS {level.name}")
        sql = f"SELECT {', '.join([named, *items])} FROM ({child.sql}) q GROUP BY {sets}"
        return Query(sql, (*key_columns, *columns, level))

    def distinct(self, depth: int) -> Query:
        child = self.select(depth)
        return Query(child.sql.replace("SELECT ", "SELECT DISTINCT ", 1), child.columns)

    def total_order(self, columns: Sequence[Column]) -> str:
        fitting = self.draw(st.permutations(list(columns)))
        words = [f"{c.name}{self.pick(['', ' DESC'])}{self.pick(['', ' NULLS FIRST', ' NULLS LAST'])}" for c in fitting]
        return ", ".join(words)

    def sortable(self, child: Query) -> Query:
        """The child without arrays, so that an order over all its columns is total."""
        columns = child.of(*COMPARABLE)
        if len(columns) == len(child.columns):
            return child
        if not columns:
            return self.scan_of_numbers()
        return Query(f"SELECT {', '.join(column.name for column in columns)} FROM ({child.sql}) q", tuple(columns))

    def scan_of_numbers(self) -> Query:
        name = self.fresh()
        return Query(f"SELECT v AS {name} FROM t2", (Column(name, "int"),))

    def distinct_on(self, depth: int) -> Query:
        child = self.sortable(self.query(depth - 1))
        key = self.pick(child.columns)
        rest = [column for column in child.columns if column != key]
        order = ", ".join([key.name, *([self.total_order(rest)] if rest else [])])
        return Query(f"SELECT DISTINCT ON ({key.name}) * FROM ({child.sql}) q ORDER BY {order}", child.columns)

    def set_operation(self, depth: int) -> Query:
        left, right = self.query(depth - 1), self.query(depth - 2)
        pairs: list[tuple[Column, Column]] = []
        for a, b in self.draw(st.permutations(self.pairs(left, right))):
            if all(a != x for x, _ in pairs) and len(pairs) < 3:
                pairs.append((a, b))
        if not pairs:
            return left
        mine, columns = self.renamed([a for a, _ in pairs])
        theirs = ", ".join(b.name for _, b in pairs)
        word = self.pick(["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"])
        return Query(f"SELECT {mine} FROM ({left.sql}) l {word} SELECT {theirs} FROM ({right.sql}) r", columns)

    def window(self, depth: int) -> Query:
        child = self.sortable(self.query(depth - 1))
        items: list[str] = []
        columns: list[Column] = []
        for _ in range(self.draw(st.integers(1, 2))):
            text, kind = self.window_call(child)
            columns.append(Column(self.fresh(), kind))
            items.append(f"{text} AS {columns[-1].name}")
        return Query(f"SELECT q.*, {', '.join(items)} FROM ({child.sql}) q", (*child.columns, *columns))

    def window_call(self, child: Query) -> tuple[str, str]:
        partition = self.some(child.columns, 0, 2)
        parts = f"PARTITION BY {', '.join(column.name for column in partition)} " if partition else ""
        key = self.pick(child.columns)
        total, ties = self.total_order(child.columns), key.name + self.pick(["", " DESC"])
        value = self.pick(child.columns)
        calls = [
            (f"ROW_NUMBER() OVER ({parts}ORDER BY {total})", "big"),
            (f"{self.pick(['RANK', 'DENSE_RANK'])}() OVER ({parts}ORDER BY {ties})", "big"),
            (f"COUNT(*) OVER ({parts}ORDER BY {ties} {self.pick(['', self.groups()])})", "big"),
            (f"{self.pick(['LAG', 'LEAD'])}({value.name}) OVER ({parts}ORDER BY {total})", value.kind),
            (f"{self.pick(['FIRST_VALUE', 'LAST_VALUE'])}({value.name}) OVER ({parts}ORDER BY {total})", value.kind),
            (f"COUNT({value.name}) OVER ({parts[:-1]})", "big"),
        ]
        numbers = child.of("int", "numeric")
        if numbers:
            number = self.pick(numbers)
            kind = "big" if number.kind == "int" else "numeric"
            rows = self.pick(["", "ROWS 1 PRECEDING", "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"])
            calls.append((f"SUM({number.name}) OVER ({parts}ORDER BY {total} {rows})", kind))
            frame = self.pick(["", self.groups()])
            calls.append((f"MAX({number.name}) OVER ({parts}ORDER BY {ties} {frame})", number.kind))
            near = "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING"
            calls.append((f"COUNT(*) OVER ({parts}ORDER BY {number.name} {near})", "big"))
        return self.pick(calls)

    def groups(self) -> str:
        return self.pick(["GROUPS 1 PRECEDING", "GROUPS BETWEEN CURRENT ROW AND 1 FOLLOWING"])

    def top(self, depth: int) -> Query:
        child = self.sortable(self.query(depth - 1))
        limit = f"LIMIT {self.draw(st.integers(1, 3))}" + self.pick(["", "", " OFFSET 1"])
        return Query(f"SELECT * FROM ({child.sql}) q ORDER BY {self.total_order(child.columns)} {limit}", child.columns)

    def lateral_top(self, depth: int) -> Query:
        left, right = self.query(depth - 1), self.sortable(self.query(depth - 2))
        pairs = self.pairs(left, right)
        condition = "true" if not pairs else "{1} = {0}".format(*(c.name for c in self.pick(pairs)))
        inner = f"SELECT * FROM ({right.sql}) s WHERE {condition} ORDER BY {self.total_order(right.columns)} LIMIT 2"
        word = self.pick(["CROSS JOIN LATERAL ({}) r", "LEFT JOIN LATERAL ({}) r ON true"])
        return Query(f"SELECT * FROM ({left.sql}) l {word.format(inner)}", (*left.columns, *right.columns))

    def unnest(self, depth: int) -> Query:
        child = self.query(depth - 1)
        arrays = child.of("ints")
        if not arrays:
            return self.series(depth)
        name = self.fresh()
        word = self.pick([f"CROSS JOIN unnest({{}}) u({name})", f"LEFT JOIN LATERAL unnest({{}}) u({name}) ON true"])
        source = word.format(self.pick(arrays).name)
        return Query(f"SELECT * FROM ({child.sql}) q {source}", (*child.columns, Column(name, "int")))

    def series(self, depth: int) -> Query:
        child = self.query(depth - 1)
        numbers = child.of("int")
        if not numbers:
            return child
        name = self.fresh()
        source = f"generate_series(0, {self.pick(numbers).name}) u({name})"
        word = self.pick([f"CROSS JOIN {source}", f"LEFT JOIN LATERAL {source} ON true"])
        return Query(f"SELECT * FROM ({child.sql}) q {word}", (*child.columns, Column(name, "int")))

    def common_table(self, depth: int) -> Query:
        child = self.query(depth - 1)
        fitting = child.of(*COMPARABLE)
        if not fitting:
            return child
        name, key = self.fresh("w"), self.pick(fitting)
        mine, columns = self.renamed(child.columns, "a")
        other, more = self.renamed([key], "b")
        word = self.pick(["JOIN", "LEFT JOIN"])
        on = f"a.{key.name} {self.pick(['=', 'IS NOT DISTINCT FROM', '<'])} b.{key.name}"
        body = f"SELECT {mine}, {other} FROM {name} a {word} {name} b ON {on}"
        return Query(f"WITH {name} AS ({child.sql}) {body}", (*columns, *more))


@dataclass(frozen=True)
class SqlScenario:
    """A query, the rows at the start, and batches of (table, row, weight)."""

    sql: str
    tables: dict[str, list[Row]]
    batches: list[list[tuple[str, Row, int]]]


def _row(draw: Any, table: TableSchema, rows: Sequence[Row]) -> Row | None:
    """A row that may be inserted beside the others; None when no key value is left."""
    row = [draw(st.sampled_from(_DOMAINS[column.type])) for column in table.columns]
    if table.key:
        free = [key for key in range(8) if all(other[0] != key for other in rows)]
        if not free:
            return None
        row[0] = draw(st.sampled_from(free))
    return tuple(row)


@st.composite
def sql_scenarios(draw: Any, depth: int = 5, top: str = "") -> SqlScenario:
    """A random scenario; tables have at most a handful of rows. `top` is the operator at the root, if given."""
    builder = Builder(draw)
    levels = draw(st.sampled_from([1, 2, depth - 1, depth, depth]))
    query = builder.operator(top, levels) if top else builder.query(levels)
    tables: dict[str, list[Row]] = {}
    for name, table in TABLES.items():
        rows: list[Row] = []
        for _ in range(draw(st.sampled_from([0, 2, 4, 6]))):
            row = _row(draw, table, rows)
            if row is not None:
                rows.append(row)
        tables[name] = rows
    current = {name: list(rows) for name, rows in tables.items()}
    return SqlScenario(query.sql, tables, [_batch(draw, current) for _ in range(draw(st.integers(1, 3)))])


_ACTIONS = ("insert", "delete", "update", "undo", "clear", "twice", "refill")


def _batch(draw: Any, current: dict[str, list[Row]]) -> list[tuple[str, Row, int]]:
    delta: list[tuple[str, Row, int]] = []
    for name, table in TABLES.items():
        rows = current[name]
        for action in draw(st.lists(st.sampled_from(_ACTIONS), max_size=3)):
            for row, weight in _changes(draw, table, rows, action):
                delta.append((name, row, weight))
                for _ in range(abs(weight)):
                    rows.append(row) if weight > 0 else rows.remove(row)
    return delta


def _changes(draw: Any, table: TableSchema, rows: Sequence[Row], action: str) -> list[tuple[Row, int]]:
    """The rows that one statement takes away and adds."""
    if action in ("clear", "refill"):
        fresh = _row(draw, table, ()) if action == "refill" else None
        return [*((row, -1) for row in rows), *([(fresh, 1)] if fresh is not None else [])]
    if action in ("delete", "update"):
        if not rows:
            return []
        gone = draw(st.sampled_from(rows))
        fresh = _updated(draw, table, rows, gone) if action == "update" else None
        return [(gone, -1), *([(fresh, 1)] if fresh is not None else [])]
    fresh = _row(draw, table, rows)
    if fresh is None:
        return []
    if action == "undo":
        return [(fresh, 1), (fresh, -1)]
    return [(fresh, 2 if action == "twice" and not table.key else 1)]


def _updated(draw: Any, table: TableSchema, rows: Sequence[Row], old: Row) -> Row | None:
    """The row with one or all values changed, so that keys move or stay."""
    fresh = _row(draw, table, rows)
    if fresh is None:
        return old
    if draw(st.integers(0, 3)) == 0:
        return fresh
    position = draw(st.integers(0, len(old) - 1))
    return (*old[:position], fresh[position], *old[position + 1 :])
