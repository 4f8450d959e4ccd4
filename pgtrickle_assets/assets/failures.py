"""How our errors become failures of a Dagster step: tried again only when trying again can help.

A retry policy would repeat whatever goes wrong, bugs included. Here a step is repeated after a `TransientError` alone;
it then plans again, from the frontier that holds by then.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import dagster as dg

from pgtrickle_assets.errors import PgTrickleError, TransientError

MAX_RETRIES: Final = 3
_FIRST_WAIT_SECONDS: Final = 1.0

StepContext = (
    dg.OpExecutionContext
    | dg.AssetExecutionContext
    | dg.AssetCheckExecutionContext
    | dg.OutputContext
    | dg.InputContext
)


@contextmanager
def step_failures(context: StepContext) -> Iterator[None]:
    """Asks for a retry after an error that may pass, and stops at once after one that no retry can mend."""
    try:
        yield
    except TransientError as error:
        attempt = _attempt(context)
        # Jitter keeps steps that met in a conflict from meeting again.
        wait = _FIRST_WAIT_SECONDS * 2**attempt * random.uniform(0.5, 1.5)  # noqa: S311 - nothing secret
        context.log.warning("attempt %d: %s", attempt + 1, error)
        raise dg.RetryRequested(max_retries=MAX_RETRIES, seconds_to_wait=wait) from error
    except PgTrickleError as error:
        metadata = {"error": type(error).__name__, "hint": error.hint or "-"}
        raise dg.Failure(description=str(error), metadata=metadata, allow_retries=False) from error


def _attempt(context: StepContext) -> int:
    if isinstance(context, dg.OutputContext | dg.InputContext):
        return context.step_context.previous_attempt_count if context.step_context is not None else 0
    return context.retry_number
