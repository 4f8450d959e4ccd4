"""Partitions of a stream table: option, keys, slices of rows and the lake's partition transforms.

Pure functions: neither Dagster nor the lake is known here. Three views of one thing are kept in step: the partition key
that Dagster shows, the slice of rows that belongs to it, and the DuckLake transform that keeps those rows in files of
their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.query.types import INT64
from pgtrickle_assets.suggestions import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle_assets.query.types import ColumnType

ALL_KEY: Final = "all"
"""The one key of a stream table without `partition_by`."""

NULL_KEY: Final = "__null__"
"""Key of the rows whose partition column is NULL."""

TimeUnit = Literal["hour", "day", "week", "month"]
PartitionKind = Literal["hour", "day", "week", "month", "value", "bucket"]

_TIME_UNITS: Final = ("hour", "day", "week", "month")
_KINDS: Final = (*_TIME_UNITS, "value", "bucket")
_FORMS: Final = "hour(c), day(c), week(c), month(c), value(c), value(c, [a, b]) or bucket(n, c)"
_MOST_BUCKETS: Final = 4096
_CALL: Final = re.compile(
    r"^\s*([A-Za-z_]+)\s*\(\s*(\"(?:[^\"]|\"\")+\"|[^\s,()\"]+)\s*(?:,\s*\[(.*)\]\s*)?\)\s*$", re.DOTALL
)
_BUCKET_CALL: Final = re.compile(r"^(\s*bucket\s*\()\s*(\d+)\s*,", re.IGNORECASE)
_VALUE: Final = re.compile(r"\s*(?:'((?:[^']|'')*)'|\"([^\"]*)\"|([^,'\"]+?))\s*(?:,|$)")
_KEY_FORMATS: Final[dict[str, str]] = {
    "hour": "%Y-%m-%d-%H:%M",
    "day": "%Y-%m-%d",
    "week": "%Y-%m-%d",
    "month": "%Y-%m-%d",
}
# DuckLake's transforms are parts of a date, not truncations, so a day is the triple. A week has no transform.
_TRANSFORMS: Final[dict[str, tuple[str, ...]]] = {
    "hour": ("year", "month", "day", "hour"),
    "day": ("year", "month", "day"),
    "week": ("year", "month"),
    "month": ("year", "month"),
    "value": ("identity",),
}


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """A parsed `partition_by` option.

    Attributes:
        kind: A time unit, `value` or `bucket`.
        column: Output column of the query.
        values: Listed keys of `value(c, [...])`, or the numbers of buckets; None when keys are added as values appear.
    """

    kind: PartitionKind
    column: str
    values: tuple[str, ...] | None = None

    @property
    def is_time(self) -> bool:
        """Whether keys are time windows."""
        return self.kind in _TIME_UNITS

    @property
    def buckets(self) -> int | None:
        """How many buckets `bucket(n, c)` has; None for other kinds."""
        return len(self.values or ()) if self.kind == "bucket" else None

    @property
    def key_format(self) -> str:
        """`strftime` format of the keys of a time-partitioned table."""
        return _KEY_FORMATS[self.kind]


@dataclass(frozen=True, slots=True)
class PartitionSlice:
    """The rows of one partition, as a condition on the partition column.

    Exactly one of the three holds: `is_null`; `lower <= column < upper` (UTC for a column with zone); `column = value`,
    where `value` is the key's text, to be read as the column's type. With `buckets`, `value` is the number of
    the column's bucket out of so many.
    """

    column: str
    is_null: bool = False
    lower: datetime | None = None
    upper: datetime | None = None
    value: str | None = None
    buckets: int | None = None


def parse_partition_by(text: str) -> PartitionBy:
    """Reads a `partition_by` option.

    Raises:
        ConfigurationError: When the form, the unit or a listed value is not allowed.
    """
    counted = _BUCKET_CALL.match(text)
    match = _CALL.match(text if counted is None else counted.group(1) + text[counted.end() :])
    if match is None:
        raise ConfigurationError(f"partition_by {text!r} is not of a known form.", hint=f"Use {_FORMS}.")
    kind, column, listed = match.group(1).lower(), match.group(2), match.group(3)
    if kind not in _KINDS:
        raise ConfigurationError(f"partition_by {text!r} uses {kind!r}.", hint=did_you_mean(kind, _KINDS))
    column = column[1:-1].replace('""', '"') if column.startswith('"') else column.lower()
    if kind == "bucket":
        return PartitionBy("bucket", column, _bucket_numbers(text, 0 if counted is None or listed else int(counted[2])))
    if listed is None:
        return PartitionBy(kind, column)
    if kind != "value":
        raise ConfigurationError(f"partition_by {text!r} lists values for {kind}().", hint="Only value() takes a list.")
    return PartitionBy("value", column, _parse_values(listed, text))


def _bucket_numbers(text: str, count: int) -> tuple[str, ...]:
    if not 1 <= count <= _MOST_BUCKETS:
        raise ConfigurationError(
            f"partition_by {text!r} has no number of buckets from 1 to {_MOST_BUCKETS}.", hint="Write bucket(16, c)."
        )
    return tuple(str(number) for number in range(count))


def _parse_values(listed: str, text: str) -> tuple[str, ...]:
    values: list[str] = []
    rest = listed
    while rest.strip():
        match = _VALUE.match(rest)
        if match is None:
            raise ConfigurationError(
                f"partition_by {text!r} has a list that cannot be read.", hint="Write value(c, [a, b])."
            )
        quoted, double_quoted, plain = match.groups()
        value = (
            quoted.replace("''", "'") if quoted is not None else double_quoted if double_quoted is not None else plain
        )
        check_key(value)
        if value in values:
            raise ConfigurationError(f"partition_by {text!r} lists {value!r} twice.")
        values.append(value)
        rest = rest[match.end() :]
    if not values:
        raise ConfigurationError(
            f"partition_by {text!r} lists no value.", hint="Leave the list out to add keys as they appear."
        )
    return tuple(values)


def check_key(key: str) -> None:
    """Checks that Dagster can carry a key (commas and line breaks break its backfills).

    Raises:
        ConfigurationError: Naming the key.
    """
    if not key or key == NULL_KEY or "," in key or any(ord(c) < 32 for c in key) or key.startswith("."):
        raise ConfigurationError(
            f"{key!r} cannot be a partition key.",
            hint="Keys have no comma, line break or leading dot; NULL has a partition of its own.",
        )


def canonical_keys(
    by: PartitionBy | None, keys: Sequence[str], *, stream_table: str, kind: ColumnType | None = None
) -> tuple[str, ...]:
    """The keys that a user named, spelled as Dagster and the frontier have them, each once.

    Two spellings of one key would have a frontier each for the same rows.

    Args:
        by: The partitioning, or None.
        keys: Keys as a user wrote them.
        stream_table: Whose keys they are, for errors.
        kind: Type of the partition column, where it is known; keys of `value(c)` are then values of it.

    Raises:
        ConfigurationError: For a key that no row can have, naming the nearest one or the form.
    """
    if not keys:
        raise ConfigurationError(f"no partition of {stream_table} is named.", hint="Name one, or leave the option out.")
    return tuple(dict.fromkeys(_canonical_key(by, key, stream_table, kind) for key in keys))


def _canonical_key(by: PartitionBy | None, key: str, stream_table: str, kind: ColumnType | None) -> str:
    found: str | None
    if by is None:
        found, hint = (ALL_KEY if key == ALL_KEY else None), f"It is not partitioned; its one partition is {ALL_KEY!r}."
    elif key == NULL_KEY:
        return key
    elif by.is_time:
        found, hint = _canonical_time_key(by, key)
    elif by.values is not None:
        found, hint = (key if key in by.values else None), did_you_mean(key, (*by.values, NULL_KEY))
    else:
        found, hint = canonical_value_key(key, kind)
    if found is None:
        raise ConfigurationError(f"{key!r} is not a partition of {stream_table}.", hint=hint)
    return found


def _canonical_time_key(by: PartitionBy, key: str) -> tuple[str | None, str]:
    """The key, or None and what to write instead."""
    moment = _moment_of(by, key)
    if moment is None:
        shown = time_key(by, window_start(by, datetime(2024, 7, 1)))  # noqa: DTZ001 - windows are wall-clock times
        return None, f"A {by.kind} looks like {shown}; {NULL_KEY} holds the rows without a time."
    start = window_start(by, moment)
    nearest = time_key(by, start)
    try:
        is_start = parse_time_key(by, key) == start
    except ConfigurationError:
        is_start = False
    return (nearest, "") if is_start else (None, f"Did you mean {nearest!r}?")


def _moment_of(by: PartitionBy, key: str) -> datetime | None:
    """The moment that a text names in one of the ways in which people write times."""
    for text_format in (by.key_format, "%Y-%m"):
        try:
            return datetime.strptime(key, text_format)  # noqa: DTZ007 - partition windows are wall-clock times in UTC
        except ValueError:
            pass
    try:
        return datetime.fromisoformat(key).replace(tzinfo=None)
    except ValueError:
        return None


def canonical_value_key(key: str, kind: ColumnType | None) -> tuple[str | None, str]:
    """The key as `key_of` spells the value, or None and what to write instead."""
    try:
        check_key(key)
    except ConfigurationError as error:
        return None, error.hint
    name = None if kind is None else kind.name
    try:
        if kind is not None and kind.is_integer:
            return _value_text(int(key)), ""
        match name:
            case "boolean":
                return (key if key in ("true", "false") else None), "It is 'true' or 'false'."
            case "date":
                return _value_text(date.fromisoformat(key)), ""
            case "uuid":
                return _value_text(UUID(key)), ""
            case "decimal":
                return _decimal_key(key, kind), f"Its values are of type {kind}."
            case _:
                return key, ""
    except (ValueError, InvalidOperation):
        return None, f"Its values are of type {kind}."


def _decimal_key(key: str, kind: ColumnType | None) -> str | None:
    value = Decimal(key)
    if kind is None or kind.scale is None or not value.is_finite():
        return None
    scaled = value.quantize(Decimal(1).scaleb(-kind.scale))
    return _value_text(scaled) if scaled == value else None


def slice_of(by: PartitionBy, key: str) -> PartitionSlice:
    """The rows that belong to a key.

    Raises:
        ConfigurationError: When a time key is not in the unit's format.
    """
    if key == NULL_KEY:
        return PartitionSlice(by.column, is_null=True)
    if not by.is_time:
        return PartitionSlice(by.column, value=key, buckets=by.buckets)
    start = window_start(by, parse_time_key(by, key))
    return PartitionSlice(by.column, lower=start, upper=next_window(by, start))


def parse_time_key(by: PartitionBy, key: str) -> datetime:
    """The start that a time key names.

    Raises:
        ConfigurationError: When the key is not in the unit's format.
    """
    try:
        return datetime.strptime(key, by.key_format)  # noqa: DTZ007 - partition windows are wall-clock times in UTC
    except ValueError as error:
        raise ConfigurationError(
            f"{key!r} is not a {by.kind} partition.",
            hint=f"Keys look like {datetime(2024, 7, 1).strftime(by.key_format)}.",  # noqa: DTZ001
        ) from error


def time_key(by: PartitionBy, start: datetime) -> str:
    """The key of the window that starts at `start`."""
    # strftime leaves out the zeros of years before 1000.
    return f"{start.year:04d}{start.strftime(by.key_format.removeprefix('%Y'))}"


def window_start(by: PartitionBy, moment: datetime) -> datetime:
    """Start of the window that holds `moment`; weeks begin on Monday, as `date_trunc('week', ...)` says."""
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    match by.kind:
        case "hour":
            return moment.replace(minute=0, second=0, microsecond=0)
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case _:
            return day


def next_window(by: PartitionBy, start: datetime) -> datetime:
    """Start of the window after the one that starts at `start`."""
    match by.kind:
        case "hour":
            return start + timedelta(hours=1)
        case "week":
            return start + timedelta(days=7)
        case "month":
            return (start.replace(day=1) + timedelta(days=32)).replace(day=1)
        case _:
            return start + timedelta(days=1)


def key_of(by: PartitionBy | None, value: object) -> str:
    """The key of a row whose partition column holds `value` (a Python object as Arrow gives it)."""
    if by is None:
        return ALL_KEY
    if value is None:
        return NULL_KEY
    if by.buckets is not None:
        from pgtrickle_assets.lake.partition_values import bucket_of

        return str(bucket_of(value, INT64, by.buckets))
    if not by.is_time:
        return _value_text(value)
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    elif isinstance(value, date):
        moment = datetime(value.year, value.month, value.day)  # noqa: DTZ001 - a date has no zone
    else:
        raise ConfigurationError(f"partition column {by.column!r} holds {type(value).__name__}, which is not a time.")
    return time_key(by, window_start(by, moment))


def _value_text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat(sep=" ")
        case date() | UUID() | int() | str():
            return str(value)
        case Decimal():
            return format(value, "f")
        case _:
            raise ConfigurationError(f"a value of type {type(value).__name__} cannot be a partition key.")


def count_by_key(by: PartitionBy | None, column: pa.ChunkedArray | None, rows: int) -> dict[str, int]:
    """Rows per partition key of an Arrow column.

    Args:
        by: The partitioning, or None.
        column: The partition column's values; not needed without partitioning.
        rows: Number of rows, for the unpartitioned case.
    """
    if by is None or column is None:
        return {ALL_KEY: rows} if rows else {}
    counts: dict[str, int] = {}
    for entry in column.value_counts():
        key = key_of(by, entry["values"].as_py())
        counts[key] = counts.get(key, 0) + entry["counts"].as_py()
    return counts


def lake_partition_fields(by: PartitionBy | None) -> tuple[tuple[str, str], ...]:
    """(column, transform) pairs for the DuckLake table (`lake.model.TableDefinition.partition_by`).

    A file then never holds rows of two keys, except for weeks: their files are split by month and found by statistics.
    """
    if by is None:
        return ()
    transforms = _TRANSFORMS[by.kind] if by.buckets is None else (f"bucket({by.buckets})",)
    return tuple((by.column, transform) for transform in transforms)


def same_partitioning(left: PartitionBy | None, right: PartitionBy | None) -> bool:
    """Whether the keys of two tables mean the same rows of time or value, so that they map one to one."""
    if left is None or right is None:
        return left is right
    if left.buckets is not None and left.column != right.column:
        # The number of a bucket says nothing of its values.
        return False
    return (left.kind, left.values) == (right.kind, right.values)
