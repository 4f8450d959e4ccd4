"""Choice between differential and full refresh.

The choice uses what is known before any file is opened: what the query allows, how many rows the catalog says have
changed, how large the inputs are, and how long past refreshes of the same stream table took. Estimate and outcome are
recorded, so that the choice can be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pgtrickle_assets.refresh.model import Strategy

SMALL_DELTA_ROWS = 50_000
"""Up to this many changed rows the differential way is taken without asking for its cost."""

UNMEASURED_FULL_FRACTION = 0.3
"""Without measurements, a delta above this share of the inputs' rows is recomputed in full."""

FULL_MARGIN = 1.2
"""Full must be expected to be this much faster before it is preferred: its estimate knows nothing of later
refreshes."""


@dataclass(frozen=True, slots=True)
class PastRefresh:
    """Cost of one completed refresh."""

    strategy: Strategy
    delta_rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy with its recorded reason; estimates are seconds, None where nothing is known."""

    strategy: Strategy
    code: str
    detail: str
    differential_estimate: float | None = None
    full_estimate: float | None = None


def choose(
    *,
    refresh_mode: str,
    reasons: Sequence[tuple[str, str]],
    delta_rows: int,
    input_rows: int,
    past: Sequence[PastRefresh],
) -> Choice:
    """Choose for a stream table that is filled and whose inputs changed.

    Args:
        refresh_mode: auto, differential or full, as the user set it.
        reasons: Why the query cannot be maintained differentially, as (code, detail); empty when it can.
        delta_rows: Changed rows of all inputs, by the catalog.
        input_rows: Rows of all inputs at the cut, by the catalog.
        past: Completed refreshes of this stream table, newest first.
    """
    if reasons:
        code, detail = reasons[0]
        return Choice(Strategy.FULL, code, detail)
    if refresh_mode == "full":
        return Choice(Strategy.FULL, "refresh_mode_full", "refresh_mode is full")
    if refresh_mode == "differential":
        return Choice(Strategy.DIFFERENTIAL, "refresh_mode_differential", "refresh_mode is differential")
    full = _full_estimate(past)
    differential = _differential_estimate(past, delta_rows)
    if delta_rows <= SMALL_DELTA_ROWS:
        return Choice(Strategy.DIFFERENTIAL, "small_delta", f"{delta_rows} changed rows", differential, full)
    if full is not None and differential is not None:
        detail = f"estimated {differential:.1f} s differential against {full:.1f} s full for {delta_rows} changed rows"
        cheaper_full = full * FULL_MARGIN < differential
        strategy = Strategy.FULL if cheaper_full else Strategy.DIFFERENTIAL
        return Choice(strategy, "estimated_cost", detail, differential, full)
    fraction = delta_rows / max(input_rows, 1)
    strategy = Strategy.FULL if fraction > UNMEASURED_FULL_FRACTION else Strategy.DIFFERENTIAL
    return Choice(strategy, "delta_fraction", f"{fraction:.0%} of the input rows changed", differential, full)


def _full_estimate(past: Sequence[PastRefresh]) -> float | None:
    seconds = [refresh.seconds for refresh in past if refresh.strategy is Strategy.FULL][:5]
    return median(seconds) if seconds else None


def _differential_estimate(past: Sequence[PastRefresh], delta_rows: int) -> float | None:
    """Fixed cost plus cost per changed row, by least squares over the last twenty differential refreshes."""
    points = [(r.delta_rows, r.seconds) for r in past if r.strategy is Strategy.DIFFERENTIAL][:20]
    if not points:
        return None
    mean_rows = sum(rows for rows, _ in points) / len(points)
    mean_seconds = sum(seconds for _, seconds in points) / len(points)
    spread = sum((rows - mean_rows) ** 2 for rows, _ in points)
    if spread == 0:
        return mean_seconds * max(delta_rows / max(mean_rows, 1), 1)
    slope = max(sum((rows - mean_rows) * (seconds - mean_seconds) for rows, seconds in points) / spread, 0.0)
    return max(mean_seconds + slope * (delta_rows - mean_rows), 0.0)
