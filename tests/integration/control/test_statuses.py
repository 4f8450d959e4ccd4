"""The CHECK constraints of the control schema list exactly the values that the code writes."""

import re
from enum import StrEnum

import pytest

from pgtrickle_assets.control.statuses import (
    DeliveryStatus,
    InitiatedBy,
    Origin,
    RefreshStatus,
    SourceType,
    StrategyName,
    StreamTableStatus,
)

COLUMNS: list[tuple[str, str, type[StrEnum]]] = [
    ("pgt_stream_tables", "status", StreamTableStatus),
    ("pgt_stream_tables", "origin", Origin),
    ("pgt_dependencies", "source_type", SourceType),
    ("pgt_refresh_history", "status", RefreshStatus),
    ("pgt_refresh_history", "initiated_by", InitiatedBy),
    ("pgt_refresh_history", "strategy", StrategyName),
    ("pgt_ducklake_sink_delivery", "status", DeliveryStatus),
]


@pytest.mark.parametrize(("table", "column", "values"), COLUMNS)
def test_a_check_constraint_lists_the_values_of_its_enum(catalog, table, column, values):
    (definition,) = catalog.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND conname = %s",
        (f"pgtrickle.{table}", f"{table}_{column}_check"),
    ).fetchone()
    assert set(re.findall(r"'([^']+)'::text", definition)) == {str(value) for value in values}


@pytest.mark.parametrize("status", list(StreamTableStatus))
def test_every_status_of_a_stream_table_can_be_stored(catalog, pgt_id, status):
    catalog.execute("UPDATE pgtrickle.pgt_stream_tables SET status = %s WHERE pgt_id = %s", (status, pgt_id))
    assert catalog.execute("SELECT status FROM pgtrickle.pgt_status()").fetchone() == (str(status),)
