"""Runs the project's jobs in this process, on the Dagster instance whose UI shows them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.connections import DAGSTER_DSN_VARIABLE
from pgtrickle_assets.errors import PgTrickleError

if TYPE_CHECKING:
    import dagster as dg

    from pgtrickle_assets.connections import Connections

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@contextmanager
def dagster_instance(connections: Connections) -> Iterator[dg.DagsterInstance]:
    """The Dagster instance of a project: `dagster.yaml` of this repository, its files below the project's home."""
    import dagster as dg

    home = connections.home / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).resolve().parents[2] / "dagster.yaml", home / "dagster.yaml")
    # SQLAlchemy 2.1 takes psycopg 3 for a bare postgresql URL; dagster-postgres writes for psycopg2.
    dsn = connections.dagster_dsn().get_secret_value()
    os.environ[DAGSTER_DSN_VARIABLE] = dsn.replace("postgresql://", "postgresql+psycopg2://", 1)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def run_job(definitions: dg.Definitions, instance: dg.DagsterInstance, name: str) -> dg.ExecuteInProcessResult:
    """Run a job to its end.

    Args:
        definitions: The code location.
        instance: Where the run is recorded.
        name: Name of the job.

    Raises:
        PgTrickleError: The run failed; the message is that of the first failed step.
    """
    job = definitions.resolve_job_def(name)
    result = job.execute_in_process(instance=instance, run_config=_QUIET, raise_on_error=False)
    if not result.success:
        raise PgTrickleError(
            f"Run {result.run_id} of job {name} failed: {_first_failure(result)}", hint="The Dagster UI has the log."
        )
    return result


def check_outcomes(result: dg.ExecuteInProcessResult) -> Mapping[tuple[str, str], bool]:
    """Whether each asset check of a run passed, by stream table and name of the check."""
    return {
        (".".join(found.asset_key.path), found.check_name): found.passed
        for found in result.get_asset_check_evaluations()
    }


def _first_failure(result: Any) -> str:
    for event in result.all_events:
        if event.is_step_failure:
            data = event.step_failure_data
            if data.user_failure_data and data.user_failure_data.description:
                return str(data.user_failure_data.description)
            error = data.error
            while error and error.cause:
                error = error.cause
            if error:
                return str(error.message).strip().splitlines()[0]
    return "see the run's log"
