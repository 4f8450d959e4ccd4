"""A stream table as the user declares it: a query and its options."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from pgtrickle_assets.documents import as_configuration_error
from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.partitions import PartitionBy, parse_partition_by
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.schedules import Schedule, parse_schedule

RefreshMode = Literal["auto", "differential", "full"]
Dialect = Literal["postgres", "spark"]

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_MAX_NAME_BYTES: Final = 63
_OWNER: Final = re.compile(r"^(team:.+|[^@\s]+@[^@\s]+\.[^@\s]+)$")


def check_name_part(part: str, what: str) -> None:
    """Checks one part of a schema-qualified name.

    Any Unicode text that PostgreSQL takes as a quoted identifier is allowed, except what a folder, an asset key or a
    qualified name cannot carry: dots, slashes and control characters.

    Raises:
        ConfigurationError: Naming the part and the rule.
    """
    if not part or part != part.strip():
        raise ConfigurationError(f"{what} {part!r} is empty or has blanks around it.", hint="Rename it.")
    if _CONTROL.search(part) or "/" in part or "." in part or "\\" in part:
        raise ConfigurationError(
            f"{what} {part!r} has a dot, a slash or a control character.",
            hint="Use other characters; a quoted name may hold anything else.",
        )
    if len(part.encode()) > _MAX_NAME_BYTES:
        raise ConfigurationError(
            f"{what} {part!r} is longer than {_MAX_NAME_BYTES} bytes.",
            hint="PostgreSQL cuts longer names; choose a shorter one.",
        )


def _as_text(value: object) -> object:
    # YAML reads `1` or `2024-01-01` as a number or a date; options are text.
    return value if value is None or isinstance(value, str) else str(value)


Text = Annotated[str, BeforeValidator(_as_text)]


class StreamTableOptions(BaseModel):
    """The options of a stream table, as in the block at the head of its SQL file.

    Attributes:
        schedule: Duration, cron expression, `calculated` or `manual`.
        refresh_mode: `auto`, `differential` or `full`.
        partition_by: `hour(c)`, `day(c)`, `week(c)`, `month(c)`, `value(c)`, `value(c, [a, b])` or `bucket(n, c)`.
        partition_start: First partition of a time-partitioned table; found from the data when left out.
        partition_end: End (exclusive) of a time-partitioned table; open when left out.
        description: Text for people, shown in the Dagster UI and in the lake.
        owners: `team:name` or e-mail addresses.
        tags: Dagster tags.
        view: Name (`schema.view`) of a view to keep in the lake: the query itself, which DuckDB runs on what the lake
            holds at the moment of reading. None for no view.
        dialect: `postgres`, or `spark` for a query that is sent to Spark as it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    schedule: Text = "calculated"
    refresh_mode: RefreshMode = "auto"
    partition_by: Text | None = None
    partition_start: Text | None = None
    partition_end: Text | None = None
    description: Text = ""
    owners: tuple[str, ...] = ()
    tags: dict[str, Text] = Field(default_factory=dict)
    view: Text | None = None
    dialect: Dialect = "postgres"

    @field_validator("view")
    @classmethod
    def _view_is_qualified(cls, value: str | None) -> str | None:
        if value is not None:
            parts = value.split(".")
            if len(parts) != 2:
                raise ValueError(f"view {value!r} is not of the form schema.view.")
            for part, what in zip(parts, ("schema", "view"), strict=True):
                _as_value_error(lambda text, what=what: check_name_part(text, what), part)
        return value

    @field_validator("schedule")
    @classmethod
    def _schedule_is_known(cls, value: str) -> str:
        _as_value_error(parse_schedule, value)
        return value

    @field_validator("partition_by")
    @classmethod
    def _partition_by_is_known(cls, value: str | None) -> str | None:
        if value is not None:
            _as_value_error(parse_partition_by, value)
        return value

    @field_validator("partition_start", "partition_end")
    @classmethod
    def _partition_limit_is_a_time(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                datetime.fromisoformat(value)
            except ValueError as error:
                raise ValueError(f"{value!r} is not a date; write it like 2024-07-01.") from error
        return value

    @field_validator("owners")
    @classmethod
    def _owners_are_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for owner in value:
            if not _OWNER.match(owner):
                raise ValueError(f"owner {owner!r} is neither team:name nor an e-mail address.")
        return value


def _as_value_error(parse: Any, value: str) -> None:
    try:
        parse(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


class StreamTable(StreamTableOptions):
    """A query whose result is kept up to date in the lake.

    Example:
        `StreamTable(name="gold.revenue_by_day", query="SELECT ...", schedule="1m", partition_by="day(order_date)")`

    Attributes:
        name: `schema.table` of the lake table; also the asset key.
        query: The defining query.
        path: SQL file it came from, relative to the project folder; None when declared in Python.
        query_line: 1-based line of `path` on which `query` starts.
        from_sql: Made by the SQL functions of the control schema.
    """

    name: str
    query: str
    path: str | None = None
    query_line: int = 1
    from_sql: bool = False

    def __init__(self, **options: Any) -> None:
        """Checks name, query and options.

        Raises:
            ConfigurationError: For the first mistake, naming the nearest valid option.
        """
        try:
            super().__init__(**options)
        except ValidationError as error:
            name = options.get("name", "")
            raise as_configuration_error(error, type(self), f"stream table {name}".strip()) from error

    @field_validator("name")
    @classmethod
    def _name_is_qualified(cls, value: str) -> str:
        parts = value.split(".")
        if len(parts) != 2:
            raise ValueError(f"stream table name {value!r} is not of the form schema.table.")
        for part, what in zip(parts, ("schema", "stream table"), strict=True):
            try:
                check_name_part(part, what)
            except ConfigurationError as error:
                raise ValueError(str(error)) from error
        return value

    @field_validator("query")
    @classmethod
    def _query_is_not_empty(cls, value: str) -> str:
        if not value.strip().rstrip(";").strip():
            raise ValueError("the query is empty.")
        return value

    @property
    def table(self) -> TableName:
        """The lake table."""
        schema, name = self.name.split(".")
        return TableName(schema, name)

    @property
    def partitioning(self) -> PartitionBy | None:
        """The parsed `partition_by`, or None for one partition."""
        return None if self.partition_by is None else parse_partition_by(self.partition_by)

    @property
    def parsed_schedule(self) -> Schedule:
        """The parsed `schedule`."""
        return parse_schedule(self.schedule)
