"""Running a Dagster job in this process, so that the UI shows what a command did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.errors import PgTrickleError

if TYPE_CHECKING:
    import dagster as dg

CODE_LOCATION = "pgtrickle"

# Events go to the instance; the terminal shows progress and results.
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class RunFailedError(PgTrickleError):
    """A Dagster run that a command started has failed."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended.

    Attributes:
        run_id: The run.
        success: Whether all steps succeeded.
        failures: Step and message of each failed step; skipped steps are not failures.
        evaluations: Asset checks that were evaluated.
    """

    run_id: str
    success: bool
    failures: tuple[tuple[str, str], ...]
    evaluations: tuple[dg.AssetCheckEvaluation, ...]


def run_job(
    instance: dg.DagsterInstance,
    job: dg.JobDefinition,
    *,
    config: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> RunOutcome:
    """Runs a job here and waits for its end.

    Args:
        instance: Where the run is recorded.
        job: The job.
        config: Run configuration.
        tags: Run tags.
        on_step: Called with the name of each step that starts.
    """
    # `execute_in_process` knows neither progress nor the code location that the UI links a run to; these two do. They
    # are not exported, but Dagster is pinned to one version.
    from dagster._core.definitions.job_base import InMemoryJob
    from dagster._core.execution.api import execute_run_iterator

    run = instance.create_run_for_job(
        job, run_config={**(config or {}), **_QUIET}, tags=tags, remote_job_origin=_origin(job.name)
    )
    failures: list[tuple[str, str]] = []
    evaluations: list[dg.AssetCheckEvaluation] = []
    for event in execute_run_iterator(InMemoryJob(job), run, instance):
        if event.is_step_start and event.step_key is not None:
            on_step(event.step_key)
        elif event.is_step_failure:
            failures.append((event.step_key or job.name, _message(event)))
        elif event.event_type_value == "ASSET_CHECK_EVALUATION":
            evaluations.append(event.asset_check_evaluation_data)
    finished = instance.get_run_by_id(run.run_id)
    return RunOutcome(run.run_id, finished is not None and finished.is_success, tuple(failures), tuple(evaluations))


def raise_failures(outcome: RunOutcome, what: str, *, step_names: Mapping[str, str] | None = None) -> None:
    """Raises the first failure of a run.

    Raises:
        RunFailedError: Naming the step and the run.
    """
    if outcome.success:
        return
    names = step_names or {}
    shown = [f"{names.get(step, step)}: {message}" for step, message in outcome.failures]
    more = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
    first = shown[0] if shown else "the run ended without saying why."
    raise RunFailedError(
        f"{what} failed: {first}{more}", hint=f"Run {outcome.run_id} in the Dagster UI has the details."
    )


def _message(event: dg.DagsterEvent) -> str:
    data = event.step_failure_data
    described = data.user_failure_data.description if data.user_failure_data else None
    if described:
        return described
    error = data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return " ".join((error.message if error else "unknown error").split())


def _origin(job: str) -> Any:
    from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

    return RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(CODE_LOCATION), "__repository__").get_job_origin(job)


def step_names(names: Sequence[str]) -> dict[str, str]:
    """Stream table of each step of the job `refresh`."""
    from pgtrickle_assets.assets.jobs import step_name

    return {step_name(name): name for name in names}
