"""A project of three stream tables, and an engine that records what Dagster asks of it.

The engine stands in for Spark, PostgreSQL and the lake: these tests are about what reaches it and what Dagster makes of
the answers. The same paths run on the real engine in `tests/integration/dagster`.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import dagster as dg
import pytest

from pgtrickle_assets import Project, StreamTable, build_definitions
from pgtrickle_assets.assets.keys import ENGINE
from pgtrickle_assets.control.sql_definitions import SqlRequests
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.model import (
    CheckReport,
    Freshness,
    Lag,
    MirrorReport,
    PreparedRefresh,
    Recovered,
    RefreshResult,
    Strategy,
    StreamTableStatus,
)
from pgtrickle_assets.refresh.upkeep import UpkeepReport
from pgtrickle_assets.schema_cache import KnownSchemas
from resources.engine import engine_resource

ORDERS = TableName("raw", "orders")


@dataclass
class RecordingEngine:
    """Answers as told and keeps what it was asked."""

    calls: list = field(default_factory=list)
    touched: dict = field(default_factory=dict)
    errors: dict = field(default_factory=dict)
    changed: bool = False
    behind_tables: frozenset = frozenset()
    passed: bool = True
    fresh: bool = True
    changed_columns: tuple = ()
    recovered: Recovered = field(default_factory=Recovered)
    moved: dict = field(default_factory=dict)
    last_refresh: dict = field(default_factory=dict)
    statuses: dict = field(default_factory=dict)
    retries: tuple = ()
    deliveries: dict = field(default_factory=dict)
    failed: dict = field(default_factory=dict)
    snapshot: int = 10
    project: Project | None = None
    sql_requests: SqlRequests = field(default_factory=lambda: SqlRequests((), (), {}))

    def requests(self):
        return self.sql_requests

    def _record(self, *call):
        self.calls.append(call)
        error = self.errors.get(call[:2]) or self.errors.get(call[:1])
        if error:
            raise error.pop(0) if isinstance(error, list) and error else error

    def sync(self):
        self._record("sync")
        return KnownSchemas()

    def head(self):
        return self.snapshot

    def paused(self):
        return frozenset(name for name, status in self.statuses.items() if status == "PAUSED")

    def has_source_changes(self):
        self._record("has_source_changes")
        return self.changed

    def behind(self):
        return self.behind_tables

    def capture(self, run_id):
        self._record("capture")
        return MirrorReport(self.snapshot, self.snapshot, {ORDERS: (3, 1), TableName("raw", "still"): (0, 0)}, 0.1)

    def prepare(self, name, *, partitions, cut, full, run_id, initiated_by):
        self._record("prepare", name, partitions, cut, full, initiated_by)
        schema, table = name.split(".")
        strategy = Strategy.FULL if full else Strategy.DIFFERENTIAL
        return PreparedRefresh(
            stream_table=TableName(schema, table),
            refresh_id=1,
            run_id=run_id,
            strategy=strategy,
            reason_code="small_delta",
            reason="the delta is small",
            cut=cut or 0,
            windows=(),
            partitions=partitions,
            outputs=(),
            delta_in=4,
            statements=(("result", "SELECT 1"),),
            seconds={"total": 0.5},
            jobs=1,
            started_at=0.0,
        )

    def deliver(self, prepared):
        name = str(prepared.stream_table)
        self._record("deliver", name)
        touched = self.touched.get(name, prepared.partitions or ())
        return RefreshResult(
            prepared.stream_table, prepared.strategy, prepared.reason_code, prepared.reason, 4, 2, 2, 1, 100, 1, 11,
            prepared.cut, {"raw.orders": prepared.cut}, 7, tuple(touched), dict.fromkeys(touched, 5),
            prepared.statements, {"total": 0.5}, 1, 1, "FAILED_PERMANENT" if name in self.failed else "DELIVERED",
            self.failed.get(name),
        )  # fmt: skip

    def schema_changes(self):
        self._record("schema_changes")
        return self.changed_columns

    def recover(self):
        self._record("recover")
        return self.recovered

    def lags(self):
        self._record("lags")
        return {**{name: Lag(unfilled=True) for name in self.behind_tables}, **self.moved}

    def freshness(self, name):
        return Freshness(self.fresh, 0.0 if self.fresh else 900.0, 300.0, 10, "is so and so")

    def check_agrees_with_duckdb(self, name):
        return replace(self.check_equals_full(name), check="agrees_with_duckdb")

    def check_equals_full(self, name):
        self._record("check", name)
        schema, table = name.split(".")
        differences = () if self.passed else ((("1", None), 1), (("2", "x"), -1))
        return CheckReport(
            TableName(schema, table), "differential_equals_full", self.passed, 7, 7, len(differences) // 2,
            len(differences) // 2, ("a", "b"), differences, 11, 0.2,
        )  # fmt: skip

    def read(self, name, partitions=None):
        self._record("read", name, partitions)
        return f"frame of {name}"

    def maintain(self, *, dry_run=False):
        self._record("maintain", dry_run)
        return UpkeepReport(orphaned_files=2)

    def status(self):
        moments = {name: moment.isoformat() for name, moment in self.last_refresh.items()}
        return [
            StreamTableStatus(
                TableName(*name.split(".")),
                self.statuses.get(name, "ACTIVE"),
                "auto",
                "differential",
                (),
                10,
                7,
                "full",
                moments.get(name),
                None,
            )
            for name in ("silver.items", "gold.by_day", "gold.by_region")
        ]

    def due_retries(self):
        self._record("due_retries")
        return self.retries

    def sink_status(self):
        return [
            {"stream_table_name": name, "last_delivery_status": status, "last_error": "503", "failed_attempts": 2}
            for name, status in self.deliveries.items()
        ]

    def history(self, name, limit):
        return [{"strategy": "differential", "seconds": 0.5}, {"strategy": "full", "seconds": 2.0}]

    def asked(self, kind):
        return [call[1:] for call in self.calls if call[0] == kind]


def make_project(home, **overrides):
    options = {
        "silver.items": {},
        "gold.by_day": {"partition_by": "day(d)", "partition_start": "2024-07-01", "partition_end": "2024-07-04"},
        "gold.by_region": {"partition_by": "value(r, [EU, US])", "description": "By region"},
    }
    queries = {
        "silver.items": "SELECT * FROM orders",
        "gold.by_day": "SELECT d, count(*) AS n FROM silver.items GROUP BY d",
        "gold.by_region": "SELECT r, count(*) AS n FROM silver.items GROUP BY r",
    }
    tables = [
        StreamTable(name=name, query=queries[name], **{**options[name], **overrides.get(name, {})}) for name in queries
    ]
    return Project(tables, home=home)


@pytest.fixture
def engine():
    return RecordingEngine()


@pytest.fixture
def project(tmp_path):
    return make_project(tmp_path / "home")


@pytest.fixture
def definitions(project, engine):
    return definitions_of(project, engine)


def definitions_of(project, engine):
    engine.project = project
    opened = engine_resource(project, lambda *_: nullcontext(engine))
    return build_definitions(project, resources={ENGINE: opened})


@pytest.fixture
def serve(engine):
    """Builds the definitions of another project."""
    return lambda project: definitions_of(project, engine)


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def rebuild_project(tmp_path, engine):
    """Builds project and definitions with other options."""

    def build(**overrides):
        other = make_project(tmp_path / "home", **overrides)
        return other, definitions_of(other, engine)

    return build


@pytest.fixture
def now():
    return datetime.now(UTC)
