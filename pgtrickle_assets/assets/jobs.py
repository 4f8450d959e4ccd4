"""The jobs: `refresh`, `rebuild` (one run, one Spark session, everything asked for), `restore`, `verify`, `maintain`.

A Dagster run cannot mix partition definitions, and a refresh materializes only partitions that its delta reaches. So
`refresh` is no asset job: it has a step per stream table, wired like their dependencies, whose outputs go through the
same IO manager as those of the assets. When a step fails, its readers are skipped and the others go on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg
from pydantic import Field

from pgtrickle_assets.assets.checks import check_names
from pgtrickle_assets.assets.delivered_check import log_delivered
from pgtrickle_assets.assets.engine import EngineSession
from pgtrickle_assets.assets.failures import step_failures
from pgtrickle_assets.assets.keys import ENGINE, IO_MANAGER, RUN_PLAN, SPARK, SPARK_POOL, identifier, lake_key
from pgtrickle_assets.assets.processes import mark_process
from pgtrickle_assets.assets.source_assets import capture, mirror_events
from pgtrickle_assets.assets.stream_table_assets import prepare
from pgtrickle_assets.errors import PgTrickleError
from pgtrickle_assets.project import Project
from pgtrickle_assets.refresh.model import PreparedRefresh
from pgtrickle_assets.stream_table import StreamTable

REFRESH: Final = "refresh"
REBUILD: Final = "rebuild"
VERIFY: Final = "verify"
RESTORE: Final = "restore"
MAINTAIN: Final = "maintain"
FROM_SQL: Final = "stream_tables_from_sql"
START: Final = "capture"
"""Name of the first step, which takes the run's configuration."""


@dataclass(frozen=True)
class RunPlan:
    """What a run has to do: the cut it reads at and, by stream table, the partitions (None: all).

    `full` names the stream tables that are recomputed.
    """

    cut: int
    partitions: Mapping[str, tuple[str, ...] | None]
    full: frozenset[str]
    initiated_by: str


class RefreshRunConfig(dg.Config):
    """Configuration of a `refresh` or `rebuild` run."""

    stream_tables: list[str] | None = Field(
        default=None,
        description="Stream tables to refresh, as schema.table; everything upstream comes along. All by default.",
    )
    partitions: list[str] | None = Field(
        default=None, description="Partitions of the named stream table to refresh; needs exactly one stream table."
    )
    full: bool = Field(
        default=False,
        description="Recompute the named stream tables from scratch; what is upstream is refreshed as usual.",
    )
    capture: bool = Field(default=True, description="Move the change buffers of the sources into the mirrors first.")
    initiated_by: str = Field(default="MANUAL", description="Recorded in the refresh history.")


class RestoreRunConfig(dg.Config):
    """Configuration of a `restore` run."""

    stream_table: str = Field(description="Stream table, as schema.table.")
    snapshot: str | None = Field(default=None, description="Label of the snapshot; the newest by default.")


def build_jobs(project: Project) -> list[Any]:
    """All jobs of a project; one without stream tables has nothing to verify."""
    graph = _refresh_graph(project)
    jobs: list[Any] = [
        _maintain_job(),
        graph.to_job(
            name=REFRESH,
            description="Move the sources' changes into the lake and refresh the stream tables that they reach.",
            executor_def=dg.in_process_executor,
        ),
        graph.to_job(
            name=REBUILD,
            description="Recompute stream tables in full, state included.",
            config={"ops": {START: {"config": {"full": True}}}},
            executor_def=dg.in_process_executor,
        ),
        _restore_job(),
    ]
    if project.stream_tables:
        verify = dg.define_asset_job(
            VERIFY,
            selection=dg.AssetSelection.checks(
                *(
                    dg.AssetCheckKey(lake_key(table.table), name)
                    for table in project.stream_tables
                    for name in check_names()
                )
            ),
            description="Run every check on every stream table.",
            executor_def=dg.in_process_executor,
        )
        jobs.append(verify)
    return jobs


def step_name(stream_table: str) -> str:
    """Name of the step that refreshes a stream table (`schema.table`)."""
    return identifier(REFRESH, *stream_table.split("."))


def run_plan(project: Project, config: RefreshRunConfig, cut: int, paused: frozenset[str] = frozenset()) -> RunPlan:
    """What a configuration asks for.

    A rebuild of named stream tables refreshes what is upstream of them but recomputes only them. A run for all leaves
    out what is paused, and what reads it: that cannot move while its upstream stands still.

    Raises:
        ConfigurationError: For an unknown stream table or partition.
        PgTrickleError: For partitions without exactly one stream table, or a named one that is paused or reads one.
    """
    if config.stream_tables is None:
        named = tuple(name for name in project.order if not paused.intersection(project.closure([name])))
    else:
        named = tuple(config.stream_tables)
        held = sorted(paused.intersection(project.closure(named)))
        if held:
            raise PgTrickleError(f"Stream table {held[0]} is paused.", hint=f"Run `pgtrickle resume {held[0]}`.")
    if config.partitions is not None and len(named) != 1:
        raise PgTrickleError(
            "Partitions were given for more than one stream table.", hint="Name exactly one stream table."
        )
    partitions: dict[str, tuple[str, ...] | None] = dict.fromkeys(project.closure(named))
    if config.partitions is not None:
        partitions[named[0]] = project.partition_keys(named[0], config.partitions)
    return RunPlan(cut, partitions, frozenset(named if config.full else ()), config.initiated_by)


def _refresh_graph(project: Project) -> dg.GraphDefinition:
    start, late = _start_op(), _late_op(project)
    steps = {table.name: _stream_table_op(table) for table in project.stream_tables}

    def compose() -> None:
        plan = start()
        done: dict[str, Any] = {}
        for table in project.stream_tables:
            upstream = [done[name] for name in project.upstream[table.name]]
            outputs = steps[table.name](plan, upstream) if upstream else steps[table.name](plan)
            done[table.name] = outputs.done
        if done:
            late(plan, list(done.values()))
        else:
            late(plan)

    return dg.graph(name="refresh_stream_tables")(compose)


def _start_op() -> dg.OpDefinition:
    @dg.op(name=START, out=dg.Out(io_manager_key=RUN_PLAN), required_resource_keys={ENGINE})
    def start(context: dg.OpExecutionContext, config: RefreshRunConfig) -> RunPlan:
        session: EngineSession = getattr(context.resources, ENGINE)
        mark_process(context)
        with step_failures(context):
            run_plan(session.known_project(config.stream_tables or ()), config, 0)
        if config.capture:
            report = capture(session, context)
            for event in mirror_events(report):
                context.log_event(event)
            cut = report.cut
        else:
            with step_failures(context):
                cut = session.synced().head()
        with step_failures(context):
            return run_plan(session.engine.project, config, cut, session.engine.paused())

    return start


def _stream_table_op(table: StreamTable) -> dg.OpDefinition:
    @dg.op(
        name=step_name(table.name),
        description=f"Refresh {table.name}.",
        ins={"plan": dg.In(RunPlan), "upstream": dg.In(dg.Nothing)},
        out={
            "refreshed": dg.Out(
                io_manager_key=IO_MANAGER, is_required=False, metadata={"pgtrickle/stream_table": table.name}
            ),
            "done": dg.Out(dg.Nothing),
        },
        required_resource_keys={ENGINE, SPARK},
        pool=SPARK_POOL,
        tags={"kind": "spark"},
    )
    def refresh_stream_table(context: dg.OpExecutionContext, plan: RunPlan) -> Iterator[dg.Output[Any]]:
        if table.name in plan.partitions:
            session: EngineSession = getattr(context.resources, ENGINE)
            session.cut = plan.cut
            prepared = prepare(
                session,
                context,
                table.name,
                partitions=plan.partitions[table.name],
                full=table.name in plan.full,
                initiated_by=plan.initiated_by,
            )
            yield dg.Output(prepared, "refreshed")
            log_delivered(session, context, table)
        yield dg.Output(None, "done")

    return refresh_stream_table


def maintenance_schedule(job: dg.JobDefinition, cron: str) -> dg.ScheduleDefinition:
    """Starts the job `maintain`."""
    return dg.ScheduleDefinition(
        name="maintenance",
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Keeps the lake's files few and its history bounded.",
    )


def _late_op(project: Project) -> dg.OpDefinition:
    """Refreshes what was made from SQL since the code location was loaded, and so has no step of its own yet."""
    loaded = frozenset(project.order)

    @dg.op(
        name=FROM_SQL,
        description="Refresh the stream tables that were made from SQL since this code location was loaded.",
        ins={"plan": dg.In(RunPlan), "upstream": dg.In(dg.Nothing)},
        out=dg.DynamicOut(io_manager_key=IO_MANAGER, is_required=False),
        required_resource_keys={ENGINE, SPARK},
        pool=SPARK_POOL,
        tags={"kind": "spark"},
    )
    def refresh_from_sql(context: dg.OpExecutionContext, plan: RunPlan) -> Iterator[dg.DynamicOutput[Any]]:
        session: EngineSession = getattr(context.resources, ENGINE)
        for name in (name for name in plan.partitions if name not in loaded):
            session.cut = plan.cut
            prepared = prepare(
                session,
                context,
                name,
                partitions=plan.partitions[name],
                full=name in plan.full,
                initiated_by=plan.initiated_by,
            )
            yield dg.DynamicOutput(prepared, mapping_key=step_name(name))

    return refresh_from_sql


def _restore_job() -> dg.JobDefinition:
    @dg.op(
        name=RESTORE,
        out=dg.Out(io_manager_key=IO_MANAGER),
        required_resource_keys={ENGINE, SPARK},
        pool=SPARK_POOL,
        tags={"kind": "spark"},
    )
    def restore(context: dg.OpExecutionContext, config: RestoreRunConfig) -> PreparedRefresh:
        session: EngineSession = getattr(context.resources, ENGINE)
        mark_process(context)
        with step_failures(context):
            engine = session.synced()
            name = engine.project.stream_table(config.stream_table).name
            return engine.prepare_restore(name, config.snapshot, run_id=context.run.run_id)

    @dg.graph(name="restore_stream_table")
    def restore_stream_table() -> None:
        restore()

    return restore_stream_table.to_job(
        name=RESTORE,
        description="Put the content of a named snapshot of a stream table back; the next refresh moves on from it.",
        executor_def=dg.in_process_executor,
    )


def _maintain_job() -> dg.JobDefinition:
    @dg.op(name=MAINTAIN, required_resource_keys={ENGINE})
    def maintain(context: dg.OpExecutionContext) -> None:
        session: EngineSession = getattr(context.resources, ENGINE)
        mark_process(context)
        with step_failures(context):
            report = session.synced().maintain().as_dict()
        context.log.info("%s", report["skipped"] or "The lake is maintained.")
        context.add_output_metadata(report)

    @dg.graph(name="maintain_lake")
    def maintain_lake() -> None:
        maintain()

    return maintain_lake.to_job(
        name=MAINTAIN,
        description="Compact the lake's tables, expire old snapshots, remove files and history that nobody needs.",
        executor_def=dg.in_process_executor,
    )
