"""How a stream table is maintained, for people and machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.differential.derive import derive
from pgtrickle_assets.differential.operators import Operator, operators, plan_operators
from pgtrickle_assets.differential.reasons import obstacle, rule
from pgtrickle_assets.differential.steps import InputChange, Step
from pgtrickle_assets.lake.model import WEIGHT_COLUMN
from pgtrickle_assets.query.plan import Scan
from pgtrickle_assets.query.render import render
from pgtrickle_assets.query.rewrite import scans

if TYPE_CHECKING:
    from pgtrickle_assets.refresh.definition import Definition
    from pgtrickle_assets.refresh.refreshing import Rehearsal
    from pgtrickle_assets.refresh.steps_runner import Measures


def explain(definition: Definition) -> dict[str, Any]:
    """Plan and maintenance of a stream table as plain data; the SQL names relations as `name@version`.

    `plan` is the query as it is understood; `operators` are what the engine maintains, each with its rule. `steps` are
    the statements of a refresh in which every input changed; where fewer did, fewer are run, and where data is little,
    one that only picks rows of an earlier one is not.
    """
    maintenance = definition.maintenance
    is_full = definition.stream_table.refresh_mode == "full"
    reasons = derive(definition.plan).reasons if is_full else maintenance.reasons
    changes = {relation: InputChange() for relation in definition.plan.inputs}
    steps = maintenance.delta_steps(changes) if maintenance.differential else maintenance.full_steps()
    found = operators(maintenance)
    obstacles = {reason.code for reason in reasons}
    rules = dict.fromkeys([*(item.rule for item in found), *(step.rule for step in steps)])
    return {
        "stream_table": str(definition.name),
        "query": definition.stream_table.query,
        "refresh_mode": definition.stream_table.refresh_mode,
        "differential": maintenance.differential,
        "reasons": [_reason(reason.code, reason.detail) for reason in reasons],
        "notes": list(definition.plan.notes),
        "inputs": [
            {"table": str(table.name), "columns": list(table.columns)} for table in definition.plan.inputs.values()
        ],
        "columns": [{"name": column.name, "type": str(column.type)} for column in definition.plan.output],
        "state_tables": [
            {
                "state": state.relation,
                "table": str(definition.tables[state.relation]),
                "key": list(state.key),
                "columns": [{"name": column.name, "type": str(column.type)} for column in state.columns],
                "rule": state.rule,
            }
            for state in maintenance.state_tables
        ],
        "plan": [_without(asdict(item), "rule", "state") for item in plan_operators(definition.plan.root)],
        "operators": [asdict(item) for item in found],
        "rules": {name: _rule(name) for name in rules if name not in obstacles},
        "steps": [_step(step) for step in steps],
    }


def analysis(definition: Definition, rehearsal: Rehearsal, *, waiting: bool) -> dict[str, Any]:
    """What a refresh would do now, as plain data.

    Args:
        definition: The stream table.
        rehearsal: The computation of that refresh.
        waiting: Whether changes wait in the buffers of the sources; they are not in the lake, hence not in here.
    """
    choice = rehearsal.computation.choice
    return {
        "strategy": choice.strategy.value,
        "reason_code": choice.code,
        "reason": choice.detail,
        "cut": rehearsal.cut,
        "inputs": [{"table": w.relation, "since": w.since, "until": w.until} for w in rehearsal.windows],
        "rows_read": rehearsal.computation.delta_in,
        "operators": _operators(operators(definition.maintenance), rehearsal.measures),
        "steps": [asdict(measure) for measure in rehearsal.measures.steps],
        "changes": [
            {"table": str(table), "rows_inserted": inserted, "rows_deleted": deleted}
            for table, (inserted, deleted) in rehearsal.changes.items()
        ],
        "result": str(definition.name),
        "spark_jobs": rehearsal.computation.jobs,
        "seconds": rehearsal.seconds,
        "source_changes_waiting": waiting,
    }


def _operators(found: Sequence[Operator], measures: Measures) -> list[dict[str, Any]]:
    """Rows in each operator's delta and the time it took; of one with stored content, those of its step."""
    own = {item.state: item.number for item in reversed(found) if item.state}
    measured = [(measure.number, measure.rows, measure.seconds) for measure in measures.operators]
    if measured:
        steps = [measure for measure in measures.steps if measure.target in own]
        measured += [(own[measure.target], measure.rows, measure.seconds) for measure in steps]
    totals: dict[int, tuple[int, float]] = {}
    for number, rows, seconds in measured:
        known = totals.get(number, (0, 0.0))
        totals[number] = known[0] + rows, known[1] + seconds
    return [{"number": number, "rows": totals[number][0], "seconds": totals[number][1]} for number in sorted(totals)]


def _reason(code: str, detail: str) -> dict[str, str]:
    found = obstacle(code)
    return {"code": code, "detail": detail, "why": found.text, "advice": found.advice}


def _rule(name: str) -> str:
    return rule(name).text


def _without(item: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in names}


def _step(step: Step) -> dict[str, Any]:
    return {
        "target": step.target,
        "rule": step.rule,
        "role": step.role,
        "reads": sorted({f"{scan.relation}@{scan.version.value}" for scan in scans(step.query)}),
        "sql": _sql(step),
    }


def _sql(step: Step) -> str:
    names = [column.name for column in step.output_columns] + ([WEIGHT_COLUMN] if step.weighted else [])
    output = [(column.id, name) for column, name in zip(step.query.output, names, strict=True)]
    return render(step.query, "spark", _relation, output)


def _relation(scan: Scan) -> str:
    return f"`{scan.relation}@{scan.version.value}`"
