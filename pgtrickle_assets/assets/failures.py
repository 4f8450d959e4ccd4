"""How our errors become failures of a Dagster step: tried again only when trying again can help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import dagster as dg

from pgtrickle_assets.errors import PgTrickleError, TransientError

RETRIES: Final = dg.RetryPolicy(max_retries=3, delay=1, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""For steps that refresh: a retry plans again, from the frontier that then holds."""


@contextmanager
def step_failures() -> Iterator[None]:
    """Turns an error that no retry can mend into a `Failure` that stops at once."""
    try:
        yield
    except TransientError:
        raise
    except PgTrickleError as error:
        raise dg.Failure(
            description=str(error),
            metadata={"error": type(error).__name__, "hint": error.hint or "-"},
            allow_retries=False,
        ) from error
