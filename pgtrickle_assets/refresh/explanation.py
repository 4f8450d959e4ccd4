"""How a stream table is maintained, for people and machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgtrickle_assets.differential.steps import InputChange, Step
from pgtrickle_assets.lake.model import WEIGHT_COLUMN
from pgtrickle_assets.query.plan import Scan
from pgtrickle_assets.query.render import render

if TYPE_CHECKING:
    from pgtrickle_assets.refresh.definition import Definition


def explain(definition: Definition) -> dict[str, Any]:
    """Plan and maintenance of a stream table as plain data; the SQL names relations as `name@version`."""
    maintenance = definition.maintenance
    changes = {relation: InputChange() for relation in definition.plan.inputs}
    steps = maintenance.delta_steps(changes) if maintenance.differential else maintenance.full_steps()
    return {
        "stream_table": str(definition.name),
        "query": definition.stream_table.query,
        "refresh_mode": definition.stream_table.refresh_mode,
        "differential": maintenance.differential,
        "reasons": [{"code": code, "detail": detail} for code, detail in definition.reasons],
        "notes": list(definition.plan.notes),
        "inputs": [
            {"table": str(table.name), "columns": list(table.columns)} for table in definition.plan.inputs.values()
        ],
        "columns": [{"name": column.name, "type": str(column.type)} for column in definition.plan.output],
        "state_tables": [
            {"table": str(definition.tables[state.relation]), "key": list(state.key), "rule": state.rule}
            for state in maintenance.state_tables
        ],
        "steps": [{"target": step.target, "rule": step.rule, "role": step.role, "sql": _sql(step)} for step in steps],
    }


def _sql(step: Step) -> str:
    names = [column.name for column in step.columns] + ([WEIGHT_COLUMN] if step.weighted else [])
    output = [(column.id, name) for column, name in zip(step.query.output, names, strict=True)]
    return render(step.query, "spark", _relation, output)


def _relation(scan: Scan) -> str:
    return f"`{scan.relation}@{scan.version.value}`"
