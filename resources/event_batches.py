"""Many materializations of one step, written to Dagster's event log together.

Each alone costs a few transactions there: a year of days took sixteen seconds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import dagster as dg

_SIZE_VARIABLE: Final = "DAGSTER_EVENT_BATCH_SIZE"
_SIZE: Final = "500"


def enable_event_batches() -> None:
    """Let Dagster write events in batches in this process, also those of its own multi-partition outputs.

    There is no other switch than the environment; a size that the user set stays.
    """
    os.environ.setdefault(_SIZE_VARIABLE, _SIZE)


def log_materializations(context: dg.OutputContext, materializations: Sequence[dg.AssetMaterialization]) -> None:
    """As `context.log_event` for each, but in batches."""
    # `log_event` knows no batches; Dagster is pinned to one version.
    from dagster._core.events import DagsterEvent, DagsterEventBatchMetadata, generate_event_batch_id

    batch, last = generate_event_batch_id(), len(materializations) - 1
    for index, materialization in enumerate(materializations):
        if context.step_context is None:
            context.log_event(materialization)
            continue
        metadata = DagsterEventBatchMetadata(batch, is_end=index == last)
        event = DagsterEvent.asset_materialization(context.step_context, materialization, metadata)
        # Dagster hands on what it finds here, so that the run's caller sees the events too.
        context._events.append(event)  # noqa: SLF001
