"""How long the defining query takes in full, on the same Spark and the same lake."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from pgtrickle_assets.differential.derive import MaintenancePlan
from pgtrickle_assets.differential.steps import RESULT
from pgtrickle_assets.refresh.relations import Relations, StoredRelation, as_frame
from pgtrickle_assets.refresh.steps_runner import StepsRunner, needed_columns
from pgtrickle_assets.refresh.table_write import existing_table

if TYPE_CHECKING:
    from pgtrickle_assets.refresh.workspace import Workspace


def full_seconds(workspace: Workspace, name: str) -> float:
    """Run the defining query of a stream table in full and throw its rows away.

    Nothing is written, so a real full refresh takes longer than this.

    Args:
        workspace: The open project.
        name: The stream table; it and all that it reads are in the lake.

    Returns:
        Seconds from planning to the last row.
    """
    started = monotonic()
    spark, lake = workspace.spark(), workspace.lake
    plan = workspace.definition(name).plan
    stored = {
        relation: StoredRelation(None, existing_table(lake, table.name)) for relation, table in plan.inputs.items()
    }
    steps = MaintenancePlan(plan, (), None).full_steps()
    relations = Relations(spark, lake, stored, needed_columns(steps), 0)
    try:
        rows = StepsRunner(spark, relations, collect=False).run(steps)[RESULT]
        as_frame(spark, rows).write.format("noop").mode("overwrite").save()
    finally:
        relations.close()
    return monotonic() - started
