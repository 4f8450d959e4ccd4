"""All settings of the product: one list, from which the documentation is generated.

The environment variable of a setting is its name in capitals with the prefix `PGTRICKLE_`. The environment is stronger
than `settings` in a project's `pgtrickle.yaml`, and that is stronger than the defaults here. Names follow the reference
system where it has the setting.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from croniter import croniter
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.suggestions import did_you_mean, nearest

PREFIX: Final = "PGTRICKLE_"


def _setting(default: Any, description: str, *, effect: str, group: str, unit: str = "", **limits: Any) -> Any:
    """A field with what its documentation needs; `limits` are pydantic's (`ge`, `le`, `pattern`)."""
    extra: dict[str, Any] = {"effect": effect, "group": group, "unit": unit}
    return Field(default=default, description=description, json_schema_extra=extra, **limits)


class Settings(BaseSettings):
    """Settings of one process. See `settings_reference` for the list with units and effects."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, validate_default=False, hide_input_in_errors=True
    )

    project: Path | None = _setting(
        None,
        "Folder of the project.",
        effect="Without it, the code location serves the bundled example and commands use the current folder.",
        group="Project",
    )
    home: Path = _setting(
        Path(".pgtrickle"),
        "Folder for everything embedded: the PostgreSQL data directory, the lake's files, Spark's scratch files.",
        effect="A relative path is taken from the project's folder. Needs space for the sources and the lake.",
        group="Project",
    )

    catalog_dsn: SecretStr | None = _setting(
        None,
        "Connection string of the PostgreSQL database with the lake's catalog and the control schema `pgtrickle`.",
        effect="Without it the embedded PostgreSQL is started and used.",
        group="Lake",
    )
    ducklake_catalog_schema: str = _setting(
        "main",
        "Schema of DuckLake's own tables in the catalog database.",
        effect="Every statement on the catalog is qualified with it; DuckDB attaches with it as METADATA_SCHEMA.",
        group="Lake",
        min_length=1,
    )
    data_path: str | None = _setting(
        None,
        "Folder or object storage prefix (`s3://bucket/prefix/`) of the lake's Parquet files.",
        effect="A lake stays where it was made: another path is refused. Without it: `lake` in the home folder.",
        group="Lake",
    )
    ducklake_sink_max_retries: int = _setting(
        3,
        "Retries of a failed delivery before it is given up.",
        effect="Counted over runs too. Only failures that can pass are tried again: network, throttling, a lost race.",
        group="Lake",
        ge=0,
        le=100,
    )
    ducklake_sink_failure_mode: Literal["warn", "error"] = _setting(
        "warn",
        "What a delivery that is given up means for the run.",
        effect="`warn` keeps the run green and fails the check `delivered`; `error` fails the run.",
        group="Lake",
    )
    ducklake_compaction_policy: Literal["fallback", "error"] = _setting(
        "fallback",
        "What happens when the snapshot a stream table was built from has been expired by somebody else.",
        effect="`fallback` recomputes the stream table with that reason; `error` fails the refresh.",
        group="Lake",
    )

    dagster_dsn: SecretStr | None = _setting(
        None,
        "Connection string of the PostgreSQL database with Dagster's storage.",
        effect="`dagster.yaml` reads it. Without it the embedded PostgreSQL is started and used.",
        group="Dagster",
    )

    small_delta_rows: int = _setting(
        200_000,
        "Changed rows up to which a delta is read and written without Spark tasks of its own.",
        effect="Higher uses more memory in the driver; lower starts more Spark jobs for small changes.",
        group="Refresh",
        unit="rows",
        ge=0,
    )
    column_cache_bytes: int = _setting(
        4 << 30,
        "Disk space for columns of data files that refreshes looked through, in `cache` in the home folder.",
        effect="Later refreshes map them instead of reading the files again. The oldest go first; 0 keeps none. "
        "The lake's content is in it as plain as in the lake.",
        group="Refresh",
        unit="bytes",
        ge=0,
    )
    max_consecutive_errors: int = _setting(
        3,
        "Failed refreshes in a row that suspend a stream table.",
        effect="Sensors leave it and what reads it alone until `pgtrickle refresh NAME` succeeds.",
        group="Refresh",
        ge=1,
    )
    delivery_dead_after_seconds: float = _setting(
        120.0,
        "Silence after which a run on another machine counts as dead.",
        effect="Its deliveries become retryable. A run on the same machine is noticed at once.",
        group="Refresh",
        unit="seconds",
        gt=0,
    )
    history_retention_days: int = _setting(
        30,
        "How long the refresh history is kept.",
        effect="`maintain` removes older rows; the last refresh of each stream table stays.",
        group="Refresh",
        unit="days",
        ge=1,
    )

    maintenance_schedule: str = _setting(
        "23 * * * *",
        "When the job `maintain` runs, as a cron expression in UTC.",
        effect="Empty: it never starts by itself. One-minute refreshes want it every hour.",
        group="Maintenance",
    )
    maintenance_tables: Literal["own", "all"] = _setting(
        "own",
        "Which tables of the lake `maintain` compacts.",
        effect="`own`: mirrors, stream tables and their state. `all`: also those that dbt, DuckDB and others write;"
        " their transactions can then fail against a compaction.",
        group="Maintenance",
    )
    compaction_min_files: int = _setting(
        8,
        "Small files of a partition from which on they are merged.",
        effect="Lower: fewer files to open, rows are rewritten more often.",
        group="Maintenance",
        ge=2,
    )
    compaction_delete_threshold: float = _setting(
        0.3,
        "Share of deleted rows from which on a file is rewritten.",
        effect="Lower: less is read in vain, rows are rewritten more often.",
        group="Maintenance",
        gt=0,
        le=1,
    )
    compaction_memory: str = _setting(
        "1GB",
        "Memory for DuckDB while it compacts.",
        effect="Files that do not fit are sorted and merged on disk.",
        group="Maintenance",
        pattern=r"^[1-9][0-9]*(KB|MB|GB|TB|KiB|MiB|GiB|TiB)$",
    )
    snapshot_retention_hours: float = _setting(
        168.0,
        "Age from which on lake snapshots are expired.",
        effect="Bounds time travel. What a frontier, a running refresh or a named snapshot needs stays at any age. Must"
        " exceed the longest run and the longest transaction of other writers.",
        group="Maintenance",
        unit="hours",
        ge=0,
    )
    old_files_retention_hours: float = _setting(
        24.0,
        "How long files stay that compaction or expiry have replaced.",
        effect="Must exceed the longest query on the lake, which may still read them.",
        group="Maintenance",
        unit="hours",
        ge=0,
    )
    orphan_retention_hours: float = _setting(
        24.0,
        "Age from which on files are removed that no snapshot names.",
        effect="Must exceed the longest first copy of a source table. Files of deliveries in work stay at any age; what"
        " DuckDB has left stays seven times as long.",
        group="Maintenance",
        unit="hours",
        ge=0,
    )

    spark_master: str = _setting(
        "local[*]",
        "Where Spark runs: `local[n]`, `spark://host:port`, `yarn` or `k8s://...`.",
        effect="Anything but `local` needs the project's Python packages on the cluster's machines.",
        group="Spark",
        min_length=1,
    )
    spark_remote: SecretStr | None = _setting(
        None,
        "Spark Connect server to use, as `sc://host:port/;token=...`.",
        effect="Wins over `spark_master`. Runs then start without a JVM of their own; `pgtrickle up` sets it.",
        group="Spark",
    )
    spark_driver_memory: str = _setting(
        "2g",
        "Heap of Spark's driver; with a local master this is all the memory that Spark has.",
        effect="More lets larger joins and sorts stay in memory. All processes together need about 3 GiB more.",
        group="Spark",
        unit="Java size (`2g`, `512m`)",
        pattern=r"^[1-9][0-9]*[kmgtKMGT]?$",
    )
    spark_compiler: Literal["full", "quick"] = _setting(
        "full",
        "How hard the JVM works on making code fast: `full`, or `quick` for its first compiler only.",
        effect="`quick` saves processor time where Spark lives for minutes and reads little; large scans take longer.",
        group="Spark",
    )
    spark_shuffle_partitions: int = _setting(
        0,
        "Partitions of a shuffle; 0 means the number of cores, at least 2.",
        effect="Adaptive execution joins small ones. Raise it on a cluster.",
        group="Spark",
        ge=0,
    )
    spark_ui: bool = _setting(
        False,
        "Spark's own web interface.",
        effect="Serves it on the first free port from 4040 while Spark runs.",
        group="Spark",
    )
    spark_bind_address: str = _setting(
        "127.0.0.1",
        "Address on which the driver listens.",
        effect="A cluster needs an address that its machines can reach.",
        group="Spark",
    )
    spark_scratch_dir: Path | None = _setting(
        None,
        "Folder for Spark's temporary files.",
        effect="Shuffles and spills need fast local disk. Without it: `spark` in the home folder.",
        group="Spark",
    )
    spark_conf: Annotated[dict[str, str], NoDecode] = _setting(
        {},
        'Any further Spark configuration, as a JSON object (`{"spark.jars.packages": "..."}`).',
        effect="Wins over everything that pgtrickle sets itself; changing what decides results is at your own risk.",
        group="Spark",
    )

    embedded_postgres_options: Annotated[dict[str, str], NoDecode] = _setting(
        {},
        'Server settings of the embedded PostgreSQL, as a JSON object (`{"shared_buffers": "1GB"}`).',
        effect="Take effect when it is started next.",
        group="Embedded services",
    )

    @field_validator("maintenance_schedule")
    @classmethod
    def _cron_is_known(cls, value: str) -> str:
        if value.strip() and not (len(value.split()) == 5 and croniter.is_valid(value)):
            raise ValueError("it must be a cron expression of five fields, or empty")
        return value.strip()

    @field_validator("spark_conf", "embedded_postgres_options", mode="before")
    @classmethod
    def _values_are_text(cls, value: object) -> object:
        """Environment variables hold JSON; YAML and JSON read `true` and `8` as such, but both programs take text."""
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise ValueError('it must be a JSON object, e.g. {"name": "value"}') from error
        if not isinstance(value, Mapping):
            return value
        return {str(key): str(item).lower() if isinstance(item, bool) else str(item) for key, item in value.items()}

    @field_validator(
        "catalog_dsn", "dagster_dsn", "spark_remote", "data_path", "project", "spark_scratch_dir", mode="before"
    )
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        """An empty variable is how a compose file says "not set"."""
        return None if value == "" else value


def load_settings(overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings from the environment, then `overrides`, then defaults.

    Args:
        overrides: Values by setting name, as in `settings` of a project file.

    Raises:
        ConfigurationError: An unknown name among the overrides, or a wrong value in either; values are not repeated.
    """
    given = dict(overrides or {})
    for name in given:
        if name not in Settings.model_fields:
            raise ConfigurationError(f"{name!r} is not a setting.", hint=did_you_mean(str(name), Settings.model_fields))
    try:
        from_environment = Settings()
        weaker = {name: value for name, value in given.items() if name not in from_environment.model_fields_set}
        return Settings(**weaker) if weaker else from_environment
    except ValidationError as error:
        problem = error.errors(include_input=False)[0]
        name = str(problem["loc"][0]).lower() if problem["loc"] else "?"
        text = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "string_pattern_mismatch":
            text = f"Write it like {Settings.model_fields[name].default!r}"
        raise ConfigurationError(
            f"Setting {name!r}: {text}.",
            hint=f"Change {PREFIX}{name.upper()}, or {name} in pgtrickle.yaml.",
        ) from None


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One line of the settings' documentation.

    Attributes:
        name: Field of `Settings` and key in `pgtrickle.yaml`.
        variable: Environment variable.
        group: Heading it stands under.
        type: Type of its value, in words.
        default: Default as text; empty when it has none.
        unit: Unit of the value, or empty.
        description: What it is.
        effect: What changing it does.
        secret: Whether its value never shows.
    """

    name: str
    variable: str
    group: str
    type: str
    default: str
    unit: str
    description: str
    effect: str
    secret: bool


def settings_reference() -> tuple[SettingRow, ...]:
    """Every setting, in the order of the documentation."""
    return tuple(_reference_row(name) for name in Settings.model_fields)


def unknown_variables(environment: Mapping[str, str] | None = None, *, known: Iterable[str] = ()) -> tuple[str, ...]:
    """One warning for each variable that looks like a setting and is none, with the nearest name.

    Args:
        environment: Variables to look at; the process's own when None.
        known: Further variables with the prefix that mean something (those that a project file uses).
    """
    allowed = {*(f"{PREFIX}{name.upper()}" for name in Settings.model_fields), *known}
    warnings: list[str] = []
    for name in sorted(os.environ if environment is None else environment):
        if not name.upper().startswith(PREFIX) or name.upper() in allowed:
            continue
        # Without the prefix, which would make any two of them look alike.
        close = nearest(name[len(PREFIX) :], Settings.model_fields)
        hint = f"Did you mean {PREFIX}{close.upper()}?" if close else "See the list of settings."
        warnings.append(f"{name} is not a setting and has no effect. {hint}")
    return tuple(warnings)


def _reference_row(name: str) -> SettingRow:
    info = Settings.model_fields[name]
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    return SettingRow(
        name=name,
        variable=f"{PREFIX}{name.upper()}",
        group=str(extra.get("group", "")),
        type=_type_in_words(info.annotation),
        default="" if info.default is None else _as_text(info.default),
        unit=str(extra.get("unit", "")),
        description=info.description or "",
        effect=str(extra.get("effect", "")),
        secret="SecretStr" in str(info.annotation),
    )


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value == {} else str(value)


def _type_in_words(annotation: object) -> str:
    text = str(annotation)
    for marker, words in (
        ("Literal", " or ".join(f"`{value}`" for value in getattr(annotation, "__args__", ()))),
        ("SecretStr", "secret text"),
        ("dict", "JSON object"),
        ("Path", "path"),
        ("bool", "true or false"),
        ("float", "number"),
        ("int", "whole number"),
    ):
        if marker in text:
            return words
    return "text"
