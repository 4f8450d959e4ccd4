"""The same proof by another engine: DuckDB answers the defining query on the inputs at the frontier.

DuckDB reads inputs and stored table through the official DuckLake extension, so neither our reader nor our SQL for
Spark has a part in it. Rows are compared as bags, with NULL equal to NULL, NaN to NaN and 0.0 to -0.0. Engines add
floats up in different orders; rows that differ in floats alone, and there by less than their last digits, agree.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.control.frontier import EVERY_PARTITION, Frontier
from pgtrickle_assets.differential.derive import MaintenancePlan
from pgtrickle_assets.errors import LakeError, PgTrickleError
from pgtrickle_assets.lake.duckdb_attach import attach, redact
from pgtrickle_assets.query.plan import Column, QueryPlan, Scan
from pgtrickle_assets.query.render import render
from pgtrickle_assets.query.render_types import identifier, type_name
from pgtrickle_assets.refresh.comparison import SAMPLE_ROWS
from pgtrickle_assets.refresh.model import CheckReport
from pgtrickle_assets.refresh.partition_filter import Selection
from pgtrickle_assets.refresh.parts import plans_at_frontiers
from pgtrickle_assets.refresh.table_write import existing_table

if TYPE_CHECKING:
    import duckdb

    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.lake.model import LakeTable
    from pgtrickle_assets.query.types import TableName
    from pgtrickle_assets.refresh.definition import Definition

AGREES_WITH_DUCKDB: Final = "agrees_with_duckdb"

_ALIAS: Final = "pgt_lake"
_WEIGHT: Final = "pgt_weight"
_MEMORY: Final = "2GB"
"""Spark may hold the rest of the machine; what does not fit goes to the scratch folder."""

_PAIRED_ROWS: Final = 20_000
"""With more differing rows than this, floats are not the reason, and none is forgiven."""

_RELATIVE: Final = {"float32": 1e-5, "float64": 1e-9}
"""By how much sums of floats may differ: far more than the order of addition can do, far less than a wrong row."""


@dataclass(frozen=True, slots=True)
class DuckDBVerification:
    """Compares one stream table with what DuckDB computes.

    Attributes:
        lake: The lake.
        definition: The stream table.
        frontiers: How far each of its partitions is built.
        scratch: Folder for what does not fit in memory.
    """

    lake: Lake
    definition: Definition
    frontiers: Mapping[str, Frontier]
    scratch: Path

    def run(self) -> CheckReport:
        """Compare content, column names and types.

        Raises:
            PgTrickleError: The stream table was never filled.
            LakeHistoryExpiredError: An input's snapshot at the frontier is no longer kept.
            LakeError: DuckDB cannot read the lake or run the query, or reads an input otherwise than it was.
        """
        import duckdb

        from pgtrickle_assets.services.duckdb import connect

        if not self.frontiers:
            raise PgTrickleError(
                f"stream table {self.definition.name} has not been filled yet.", hint="Run `pgtrickle refresh`."
            )
        started = monotonic()
        table = existing_table(self.lake, self.definition.name)
        # Asked of the catalog first, so that an expired snapshot is told apart from an error of DuckDB.
        expected = self._expected()
        try:
            with connect(config={"temp_directory": str(self.scratch), "memory_limit": _MEMORY}) as connection:
                attach(connection, self.lake.location, _ALIAS, read_only=True)
                return self._compare(connection, table, expected, started)
        except duckdb.Error as error:
            raise LakeError(
                f"DuckDB cannot compute {self.definition.name}: {redact(str(error), self.lake.location)}",
                hint="The check says nothing about the content; differential_equals_full does.",
            ) from None

    def _compare(
        self, connection: duckdb.DuckDBPyConnection, table: LakeTable, expected: str, started: float
    ) -> CheckReport:
        columns = [column.name for column in self.definition.plan.output]
        if [column.name for column in table.columns] != columns:
            have = ", ".join(column.name for column in table.columns)
            detail = f"stored columns {have}; the query gives {', '.join(columns)}"
            return self._report(connection, table, started, detail=detail)
        stored = self._stored(table)
        wrong = _wrong_types(_types(connection, stored), _types(connection, expected), self.definition.plan)
        if wrong:
            return self._report(connection, table, started, detail=wrong)
        names = ", ".join(map(_name, columns))
        connection.execute(f"""
            CREATE TEMP TABLE differing AS
            SELECT {names}, CAST(sum({_WEIGHT}) AS BIGINT) AS {_WEIGHT}
            FROM (SELECT {names}, 1 AS {_WEIGHT} FROM ({expected}) UNION ALL SELECT {names}, -1 FROM ({stored}))
            GROUP BY ALL HAVING sum({_WEIGHT}) <> 0
        """)  # noqa: S608 - names are quoted, the rest is rendered from the plan
        compared = monotonic() - started
        rounded = self._forgive_rounding(connection)
        return self._report(connection, table, started, rounded=rounded, recompute=compared)

    def _report(
        self,
        connection: duckdb.DuckDBPyConnection,
        table: LakeTable,
        started: float,
        *,
        detail: str = "",
        rounded: int = 0,
        recompute: float | None = None,
    ) -> CheckReport:
        missing = surplus = 0
        sample: tuple[tuple[tuple[str | None, ...], int], ...] = ()
        if not detail:
            counts = f"SELECT sum(greatest({_WEIGHT}, 0)), sum(greatest(-{_WEIGHT}, 0)) FROM differing"  # noqa: S608
            missing, surplus = (int(value or 0) for value in connection.execute(counts).fetchall()[0])
            sample = self._sample(connection)
            detail = f"{rounded} rows differ in the last digits of floats, and agree" if rounded else ""
        rows = self.lake.scan(table).row_count
        return CheckReport(
            stream_table=self.definition.name,
            check=AGREES_WITH_DUCKDB,
            passed=not (missing or surplus or (detail and not rounded)),
            stored_rows=rows,
            expected_rows=rows + missing - surplus,
            surplus_rows=surplus,
            missing_rows=missing,
            columns=tuple(column.name for column in self.definition.plan.output),
            differences=sample,
            snapshot=table.at,
            seconds=monotonic() - started,
            detail=detail,
            recompute_seconds=recompute,
        )

    def _expected(self) -> str:
        """The defining query for DuckDB: each group of partitions at its own frontier."""
        parts = [self._query(plan, frontier) for plan, frontier in plans_at_frontiers(self.definition, self.frontiers)]
        return " UNION ALL ".join(f"({part})" for part in parts)

    def _query(self, plan: QueryPlan, frontier: Frontier) -> str:
        names = {relation: table.name for relation, table in plan.inputs.items()}
        for name in names.values():
            self._require_same_deletes(existing_table(self.lake, name, frontier.inputs[str(name)]))

        def relation(scan: Scan) -> str:
            name = names[scan.relation]
            return _at(name, frontier.inputs[str(name)])

        (step,) = MaintenancePlan(plan, (), None).full_steps()
        output = [(column.id, schema.name) for column, schema in zip(step.query.output, step.columns, strict=True)]
        return render(step.query, "duckdb", relation, output)

    def _require_same_deletes(self, table: LakeTable) -> None:
        if any(file.deletes is not None and file.deletes.is_misdated for file in self.lake.scan(table).files):
            raise LakeError(
                f"DuckDB does not read {table.name} at snapshot {table.at} as it was: a writer had to commit twice, "
                "and the rows that it deleted carry the snapshot of the first try",
                hint="Refresh the stream table and check it again; differential_equals_full reads them right.",
            )

    def _stored(self, table: LakeTable) -> str:
        """Stored rows of partitions that were ever built; before the first whole refresh only some are."""
        plan, partitioning = self.definition.plan, self.definition.stream_table.partitioning
        columns = tuple(Column(f"c{at}", column.type, True, column.name) for at, column in enumerate(plan.output, 1))
        stored = replace(plan, root=Scan("stored", columns, tuple(column.name for column in plan.output)))
        if EVERY_PARTITION not in self.frontiers and partitioning is not None:
            stored = Selection(partitioning, tuple(self.frontiers)).restrict(stored)
        output = [(column.id, column.name) for column in columns]
        return render(stored.root, "duckdb", lambda _: _at(self.definition.name, table.at), output)

    def _forgive_rounding(self, connection: duckdb.DuckDBPyConnection) -> int:
        """Take pairs of rows out that differ in the last digits of floats alone; how many pairs."""
        output = self.definition.plan.output
        tolerances = [_RELATIVE.get(column.type.name) for column in output]
        (count,) = connection.execute("SELECT count(*) FROM differing").fetchall()[0]
        if not any(tolerances) or not 0 < count <= _PAIRED_ROWS:
            return 0
        names = ", ".join(_name(column.name) for column in output)
        rows = connection.execute(f"SELECT rowid, {names}, {_WEIGHT} FROM differing").fetchall()  # noqa: S608
        gone = list(rounding_pairs(rows, tolerances))
        if gone:
            connection.execute("DELETE FROM differing WHERE rowid IN (SELECT unnest(?))", [gone])
        return len(gone) // 2

    @staticmethod
    def _sample(connection: duckdb.DuckDBPyConnection) -> tuple[tuple[tuple[str | None, ...], int], ...]:
        query = f"SELECT CAST(COLUMNS(* EXCLUDE ({_WEIGHT})) AS VARCHAR), -{_WEIGHT} FROM differing ORDER BY ALL"  # noqa: S608
        rows = connection.execute(f"{query} LIMIT {SAMPLE_ROWS}").fetchall()
        return tuple((tuple(row[:-1]), int(row[-1])) for row in rows)


def rounding_pairs(rows: Sequence[Sequence[Any]], tolerances: Sequence[float | None]) -> Iterator[int]:
    """Ids of rows that pair up: one missing, one surplus, the same but for the last digits of floats.

    Args:
        rows: Id, values, and how often the row is missing (+) or surplus (-).
        tolerances: Allowed relative difference by column; None where values must be the same.
    """
    groups: defaultdict[object, dict[int, list[Sequence[Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        values = row[1:-1]
        exact = tuple(
            repr(value) if tolerance is None else value is None
            for value, tolerance in zip(values, tolerances, strict=True)
        )
        groups[exact, abs(row[-1])][1 if row[-1] > 0 else -1].append(row)
    floats = [place for place, tolerance in enumerate(tolerances, 1) if tolerance is not None]

    def order(row: Sequence[Any]) -> tuple[float, ...]:
        return tuple(math.inf if row[place] is None or math.isnan(row[place]) else row[place] for place in floats)

    for sides in groups.values():
        for missing, surplus in zip(sorted(sides[1], key=order), sorted(sides[-1], key=order), strict=False):
            if all(_close(missing[place], surplus[place], tolerances[place - 1] or 0.0) for place in floats):
                yield missing[0]
                yield surplus[0]


def _close(left: float | None, right: float | None, relative: float) -> bool:
    if left is None or right is None:
        return left is right
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return math.isclose(left, right, rel_tol=relative, abs_tol=0.0)


def _types(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[str, str]]:
    return [(str(row[0]), str(row[1])) for row in connection.execute(f"DESCRIBE {query}").fetchall()]


def _wrong_types(stored: list[tuple[str, str]], computed: list[tuple[str, str]], plan: QueryPlan) -> str:
    """What differs between the types of the stored and the computed columns, in words; empty when nothing does."""
    for (name, has), (_, gives), column in zip(stored, computed, plan.output, strict=True):
        if has != gives:
            planned = type_name(column.type, "duckdb")
            return f"column {name} is stored as {has}; DuckDB computes {gives}, the query says {planned}"
    return ""


def _at(table: TableName, snapshot: int) -> str:
    return f"{_name(_ALIAS)}.{_name(table.schema)}.{_name(table.name)} AT (VERSION => {int(snapshot)})"


def _name(text: str) -> str:
    return identifier(text, "duckdb")
