"""Plays the example step by step and keeps what each step found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.assets.checks import EQUALS_FULL
from pgtrickle_assets.assets.keys import lake_key
from pgtrickle_assets.cli.runs import RunOutcome, raise_failures, run_job, step_names
from pgtrickle_assets.demo.batches import Batch, play
from pgtrickle_assets.demo.oracle import DefiningQuery, compare_with_lake, postgres_answers
from pgtrickle_assets.demo.report import CheckRow, LakeSample, RefreshRow
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.services.duckdb import connect

if TYPE_CHECKING:
    import dagster as dg

    from pgtrickle_assets.refresh.api import RefreshEngine
    from pgtrickle_assets.refresh.workspace import Workspace

AGREES_WITH_POSTGRES = "agrees_with_postgres"
SAMPLE_QUERY = (
    "SELECT carrier_name, flights, late_arrivals, avg_arrival_delay "
    "FROM lake.gold.delays_by_carrier ORDER BY flights DESC LIMIT 5"
)


@dataclass(slots=True)
class Player:
    """The open example.

    Attributes:
        folder: The example's project folder.
        source: Connection string of the example's database.
        workspace: The open project.
        engine: Refresh engine on the workspace.
        definitions: The project's code location.
        instance: Where its runs are recorded.
        say: Called with one line before each longer piece of work.
        refreshes: What the refreshes did, so far.
        outcomes: Whether each check passed after every refresh, so far.
    """

    folder: Path
    source: str
    workspace: Workspace
    engine: RefreshEngine
    definitions: dg.Definitions
    instance: dg.DagsterInstance
    say: Callable[[str], None]
    refreshes: list[RefreshRow] = field(default_factory=list)
    outcomes: dict[tuple[str, str], bool] = field(default_factory=dict)

    def play(self, batch: Batch) -> None:
        """Play a batch on the source, refresh, and compare."""
        day = play(self.source, batch, self.folder / "batches")
        self.say(f"Played {batch.name} up to {day}")
        self.refresh(batch.name)
        self.say("Comparing with a full recompute on Spark and with PostgreSQL's own answers")
        # PostgreSQL and DuckDB work while Spark does; none of them changes anything.
        with ThreadPoolExecutor(1) as pool:
            answers = pool.submit(self._ask_postgres)
            checks = self._run("verify", check=EQUALS_FULL).evaluations
            self._note(answers.result())
        self._note({(".".join(check.asset_key.path), check.check_name): check.passed for check in checks})
        full = {".".join(check.asset_key.path): check.metadata.get("recompute_seconds") for check in checks}
        self._note_full_seconds({name: value.value for name, value in full.items() if value is not None})

    def refresh(self, batch: str) -> None:
        """Refresh through Dagster what changed since the last time."""
        self.say(f"Refreshing after: {batch}")
        run = self._run("refresh")
        order = self.engine.project.order
        found = [row for row in self.engine.history(None, 4 * len(order)) if row["run_id"] == run.run_id]
        rows = [_row(row, batch) for row in found]
        self.refreshes += sorted(rows, key=lambda row: order.index(row.stream_table))

    def _note_full_seconds(self, seconds: Mapping[str, Any]) -> None:
        """Give the refreshes since the last comparison the time of the recompute that they were compared with."""
        self.refreshes = [
            row if row.full_seconds is not None else replace(row, full_seconds=_rounded(seconds.get(row.stream_table)))
            for row in self.refreshes
        ]

    def sample(self) -> LakeSample:
        """The best known stream table, read by DuckDB's own DuckLake extension."""
        with connect() as duck:
            attach(duck, self.workspace.lake.location, "lake", read_only=True)
            cursor = duck.execute(SAMPLE_QUERY)
            columns = tuple(str(column[0]) for column in cursor.description or ())
            return LakeSample(SAMPLE_QUERY, columns, tuple(tuple(row) for row in cursor.fetchall()))

    def checks(self) -> tuple[CheckRow, ...]:
        """One row per stream table and check."""
        return tuple(CheckRow(table, check, passed) for (table, check), passed in sorted(self.outcomes.items()))

    def _run(self, name: str, *, check: str | None = None) -> RunOutcome:
        import dagster as dg

        job = self.definitions.resolve_job_def(name)
        if check is not None:
            tables = self.engine.project.stream_tables
            job = job.get_subset(
                asset_check_selection={dg.AssetCheckKey(lake_key(table.table), check) for table in tables}
            )
        outcome = run_job(self.instance, job)
        raise_failures(outcome, f"job {name}", step_names=step_names(self.engine.project.order))
        return outcome

    def _note(self, outcomes: Mapping[tuple[str, str], bool]) -> None:
        for key, passed in outcomes.items():
            self.outcomes[key] = self.outcomes.get(key, True) and passed

    def _ask_postgres(self) -> dict[tuple[str, str], bool]:
        queries = [DefiningQuery(table.table, table.query) for table in self.engine.project.stream_tables]
        outcomes: dict[tuple[str, str], bool] = {}
        with connect() as duck:
            attach(duck, self.workspace.lake.location, "lake", read_only=True)
            head = self.engine.head()
            for table, answer in postgres_answers(self.source, queries):
                found = compare_with_lake(duck, "lake", table, head, answer)
                outcomes[str(table), AGREES_WITH_POSTGRES] = found.equal
                if not found.equal:
                    self.say(f"{table} differs from PostgreSQL in {found.differing} rows: {found.examples}")
        return outcomes


def _rounded(seconds: Any) -> float | None:
    return None if seconds is None else round(float(seconds), 3)


def _row(row: Mapping[str, Any], batch: str) -> RefreshRow:
    return RefreshRow(
        stream_table=str(row["stream_table"]),
        batch=batch,
        strategy=str(row["strategy"]),
        reason=str(row["refresh_reason_detail"] or row["refresh_reason"] or ""),
        delta_in=int(row["delta_row_count"] or 0),
        delta_out=int(row["delta_rows_out"] or 0),
        seconds=round(float(row["seconds"] or 0.0), 3),
        full_seconds=None,
        snapshot=int(row["ducklake_snapshot_id"] or row["cut"] or 0),
    )
