"""Named snapshots of stream tables: taking one, and putting its content back.

Putting back is a delivery like any other. It writes the difference between what is stored and what was, states
included, and sets the frontier back to that of the snapshot, so that the next refresh moves on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING

from pgtrickle_assets.control import frontier as frontiers
from pgtrickle_assets.control import history, snapshots
from pgtrickle_assets.control.frontier import EVERY_PARTITION, Frontier
from pgtrickle_assets.control.statuses import StrategyName
from pgtrickle_assets.errors import ControlError
from pgtrickle_assets.lake.spark_read import read_table
from pgtrickle_assets.refresh.comparison import difference
from pgtrickle_assets.refresh.model import InputWindow, PreparedRefresh, Strategy, TableDelta
from pgtrickle_assets.refresh.preparation import Computation
from pgtrickle_assets.refresh.refreshing import OpenRefresh, Refreshing, RefreshRequest
from pgtrickle_assets.refresh.strategy import Choice
from pgtrickle_assets.refresh.table_write import existing_table

if TYPE_CHECKING:
    from pgtrickle_assets.control.registry import StreamTableRow
    from pgtrickle_assets.control.snapshots import NamedSnapshot
    from pgtrickle_assets.lake.catalog import Lake


def take(lake: Lake, row: StreamTableRow, label: str | None) -> NamedSnapshot:
    """Name the present content of a stream table.

    Args:
        lake: The lake.
        row: The stream table.
        label: The name; `snapshot-<id of the lake snapshot>` when None.

    Raises:
        ControlError: It was not filled yet, some of its partitions have a frontier of their own, its definition changed
            since, or the label is taken.
    """
    with lake.connection() as connection, connection.transaction():
        # Held to the end: no refresh commits between the look at the frontier and the look at the newest snapshot.
        frontiers.lock(connection, row.pgt_id)
        stored = frontiers.frontiers(connection, row.pgt_id)
        built = _whole(row, stored)
        head = lake.head()
        name = label or f"snapshot-{head}"
        snapshots.take(connection, row, name, built=built, snapshot_id=head)
        return snapshots.find(connection, row, name)


def prepare_restore(
    refreshing: Refreshing, row: StreamTableRow, label: str | None, request: RefreshRequest
) -> OpenRefresh:
    """Compute what has to change for a stream table to hold the content of a named snapshot; nothing is written.

    Args:
        refreshing: Of the stream table.
        row: Its row in the registry.
        label: The snapshot; the newest when None.
        request: Who asks.

    Raises:
        ControlError: There is no such snapshot, or it belongs to another definition.
        LakeHistoryExpiredError: Somebody expired it.
    """
    started = monotonic()
    with refreshing.lake.connection() as connection:
        snapshot = snapshots.find(connection, row, label)
        if row.needs_reinit or snapshot.defining_query_hash != row.defining_query_hash:
            raise ControlError(
                f"Snapshot {snapshot.label!r} of {row.name} belongs to another definition than the present one.",
                hint="Take the earlier query again, or refresh the stream table.",
            )
        stored = frontiers.frontiers(connection, row.pgt_id)
        refresh_id = history.start(connection, row.pgt_id, initiated_by=request.initiated_by, run_id=request.run_id)
    detail = f"the content of snapshot {snapshot.label!r} was put back"
    try:
        outputs = _outputs(refreshing, snapshot)
        with refreshing.lake.connection() as connection:
            history.note_choice(connection, refresh_id, StrategyName.FULL, history.RESTORED, detail, {})
    except Exception as error:
        refreshing.fail(refresh_id, error)
        raise
    seconds = monotonic() - started
    prepared = PreparedRefresh(
        stream_table=row.name,
        refresh_id=refresh_id,
        run_id=request.run_id,
        strategy=Strategy.FULL,
        reason_code=history.RESTORED,
        reason=detail,
        cut=snapshot.cut,
        windows=tuple(InputWindow(name, None, at) for name, at in snapshot.frontier.items()),
        partitions=None,
        outputs=outputs,
        delta_in=0,
        statements=(),
        seconds={"plan": seconds, "prepare": seconds},
        jobs=0,
        started_at=started,
        data_timestamp=snapshot.data_timestamp,
    )
    computation = Computation(Choice(Strategy.FULL, history.RESTORED, detail), outputs)
    content = max((frontier.ducklake_snapshot_id for frontier in stored.values()), default=None)
    return OpenRefresh(prepared, computation, row.pgt_id, content, stored)


def _outputs(refreshing: Refreshing, snapshot: NamedSnapshot) -> tuple[TableDelta, ...]:
    """The difference between what the stream table's tables hold and what they held."""
    lake, spark = refreshing.lake, refreshing.spark()
    options = lake.location.storage_options
    deltas: list[TableDelta] = []
    for wanted in refreshing.definition.table_definitions:
        columns = [column.name for column in wanted.columns]
        now, then = (lake.scan(existing_table(lake, wanted.name, at)) for at in (None, snapshot.snapshot_version))
        stored, expected = (read_table(spark, scan, columns, storage_options=options) for scan in (now, then))
        deltas.append(TableDelta(wanted.name, difference(stored, expected, columns)))
    return tuple(deltas)


def _whole(row: StreamTableRow, stored: Mapping[str, Frontier]) -> Frontier:
    """The one frontier of all partitions.

    Raises:
        ControlError: There is none.
    """
    built = stored.get(EVERY_PARTITION)
    if row.needs_reinit or built is None or len(stored) > 1:
        raise ControlError(
            f"Stream table {row.name} is not built as a whole by its present definition.",
            hint=f"Run `pgtrickle refresh {row.name}` first.",
        )
    return built
