"""Running one scenario on DuckDB, and writing a failing one as a file that can be run again."""

from __future__ import annotations

import tempfile
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pgtrickle_assets.differential.steps import DeriveOptions
from tests.differential.duckdb_executor import StreamTable, Warehouse, connect
from tests.differential.plan_generator import TABLE_COLUMNS, Scenario


def run(scenario: Scenario, options: DeriveOptions | None = None) -> StreamTable:
    """Build the stream table, apply every batch, refresh and check after each."""
    connection = connect()
    try:
        warehouse = Warehouse(connection)
        for name, rows in scenario.tables.items():
            warehouse.create(name, TABLE_COLUMNS, rows)
        stream = StreamTable(warehouse, scenario.plan(), options)
        assert stream.maintenance.differential
        stream.check()
        for batch in scenario.batches:
            for name in scenario.tables:
                warehouse.change(name, [(*row, weight) for table, row, weight in batch if table == name])
            warehouse.apply()
            stream.refresh()
            stream.check()
            warehouse.settle()
            assert stream.refresh() == {}, "a refresh without changes must do nothing"
        return stream
    finally:
        connection.close()


def run_and_keep(scenario: Scenario, options: DeriveOptions | None = None) -> StreamTable:
    """As `run`; a failing scenario is left behind as a runnable file whose path is added to the error."""
    try:
        return run(scenario, options)
    except Exception as error:
        path = Path(tempfile.gettempdir()) / "pgtrickle_failing_case.py"
        path.write_text(source(scenario))
        error.add_note(f"run again with: python {path}")
        raise


def source(scenario: Scenario) -> str:
    """A Python file that runs the scenario."""
    return (
        "from decimal import Decimal\n"
        "from pgtrickle_assets.query.plan import *\n"
        "from pgtrickle_assets.query.types import ColumnType\n"
        "from tests.differential.plan_generator import Scenario\n"
        "from tests.differential.scenario import run\n\n"
        "nan = float('nan')\n"
        f"root = {text(scenario.root)}\n"
        f"tables = {scenario.tables!r}\n"
        f"batches = {scenario.batches!r}\n"
        "run(Scenario(root, tables, batches))\n"
    )


def text(value: Any) -> str:
    """Python source of plan data."""
    if isinstance(value, Enum):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        arguments = ", ".join(f"{f.name}={text(getattr(value, f.name))}" for f in fields(value))
        return f"{type(value).__name__}({arguments})"
    if isinstance(value, tuple):
        return "(" + "".join(f"{text(part)}, " for part in value) + ")"
    return repr(value)
