"""When a stream table is due: the `schedule` option.

A schedule is a duration (`30s`, `5m`, `1h30m`, `2d`, `1w`: at most this stale), a cron expression (five fields or
`@hourly` and its like, in UTC), `calculated` (as often as the readers need it) or `manual` (only when asked).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from croniter import croniter

from pgtrickle_assets.errors import ConfigurationError

_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"(\d+)([smhdw])")
_CRON_NAMES: Final = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
_FORMS: Final = (
    "a duration such as 30s, 5m or 1h30m, a cron expression such as '0 6 * * *' or @hourly, calculated, manual"
)


@dataclass(frozen=True, slots=True)
class Every:
    """Due when the last refresh is `seconds` old."""

    seconds: int


@dataclass(frozen=True, slots=True)
class Cron:
    """Due at each time that the expression names (UTC)."""

    expression: str


@dataclass(frozen=True, slots=True)
class Calculated:
    """As often as the tightest schedule of the readers; without a scheduled reader, at each change of a source."""


@dataclass(frozen=True, slots=True)
class Manual:
    """Never by itself."""


Schedule = Every | Cron | Calculated | Manual


def parse_schedule(text: str) -> Schedule:
    """Reads a `schedule` option.

    Args:
        text: The option as written.

    Raises:
        ConfigurationError: When the text is none of the four forms.
    """
    stripped = text.strip()
    word = stripped.lower()
    if word == "calculated":
        return Calculated()
    if word == "manual":
        return Manual()
    seconds = duration_seconds(word)
    if seconds is not None:
        if seconds < 1:
            raise ConfigurationError(f"schedule {text!r} is shorter than one second.", hint=f"Use {_FORMS}.")
        return Every(seconds)
    if (word in _CRON_NAMES or len(stripped.split()) == 5) and croniter.is_valid(stripped):
        return Cron(stripped)
    raise ConfigurationError(f"schedule {text!r} is not a schedule.", hint=f"Use {_FORMS}.")


def duration_seconds(text: str) -> int | None:
    """Seconds of a compound duration such as `1h30m`, or None when the text is not one."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(int(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def is_due(schedule: Schedule, last_refresh: datetime | None, now: datetime) -> bool:
    """Whether a stream table with this schedule should be refreshed at `now`.

    Args:
        schedule: A duration or cron schedule; the other two are never due by time.
        last_refresh: Start of the last successful refresh, aware, or None when there was none.
        now: The present, aware.
    """
    match schedule:
        case Every(seconds):
            return last_refresh is None or now - last_refresh >= timedelta(seconds=seconds)
        case Cron(expression):
            if last_refresh is None:
                return True
            return previous_time(Cron(expression), now) > last_refresh
        case _:
            return False


def previous_time(schedule: Cron, now: datetime) -> datetime:
    """The last time that a cron schedule names, up to and including `now` (aware)."""
    return croniter(schedule.expression, now.astimezone(UTC) + timedelta(microseconds=1)).get_prev(datetime)


def effective_schedules(schedules: Mapping[str, Schedule], readers: Mapping[str, Sequence[str]]) -> dict[str, Schedule]:
    """Resolves `calculated` over the dependency graph.

    A calculated table takes the shortest duration among its readers, at any distance. It stays calculated, that is
    refreshed at each change, without a reader with a duration or with one that follows each change itself; cron and
    manual readers take no part, because refreshing them refreshes what they read.

    Args:
        schedules: Schedule by stream table.
        readers: Stream tables that directly read each stream table.

    Returns:
        The schedule each table is to be refreshed by.
    """
    resolved: dict[str, Schedule] = {}

    def resolve(name: str) -> Schedule:
        if name in resolved:
            return resolved[name]
        own = schedules[name]
        if isinstance(own, Calculated):
            below = [resolve(reader) for reader in readers.get(name, ())]
            durations = [schedule.seconds for schedule in below if isinstance(schedule, Every)]
            follows_changes = any(isinstance(schedule, Calculated) for schedule in below)
            if durations and not follows_changes:
                own = Every(min(durations))
        resolved[name] = own
        return own

    for name in schedules:
        resolve(name)
    return resolved
