"""`pgtrickle.yaml`: sources, the lake, defaults and settings of a project."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from pgtrickle_assets.documents import read_document, read_text, validate
from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.stream_table import StreamTableOptions, Text
from pgtrickle_assets.type_names import parse_column, parse_numeric

PROJECT_FILE: Final = "pgtrickle.yaml"
EMBEDDED: Final = "embedded"
"""Value of `dsn` and `catalog` that means the embedded PostgreSQL."""

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SOURCE_NAME: Final = re.compile(r"^[A-Za-z0-9_]+$")


def expand_variables(text: str, what: str) -> SecretStr:
    """Replaces `${NAME}` and `${NAME:-default}` by the environment's values.

    Done when a value is used, not when the project is loaded, so that a project loads without its secrets.

    Args:
        text: Value as written.
        what: What the value is, for the error.

    Raises:
        ConfigurationError: When a variable is not set and has no default.
    """

    def value(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        found = os.environ.get(name, default)
        if found is None:
            raise ConfigurationError(
                f"{what} needs the environment variable {name}, which is not set.", hint=f"Set {name}."
            )
        return found

    return SecretStr(_VARIABLE.sub(value, text))


def variables_of(text: str) -> frozenset[str]:
    """The environment variables that `expand_variables` would read."""
    return frozenset(match.group(1) for match in _VARIABLE.finditer(text))


class SourceConfig(BaseModel):
    """A PostgreSQL database that stream tables read.

    Attributes:
        dsn: Connection string, best as `${VARIABLE}`; `embedded` is the embedded PostgreSQL.
        schemas: Search path for unqualified names.
        tables: Tables to capture besides those that stream tables read.
        exclude_columns: Columns that mirrors leave out, by table.
        numeric: `decimal(p,s)` for columns of type numeric without a scale, by `table.column`.
        columns: Types by table and column (`{orders: {id: bigint not null}}`), for loading without a database.
        mirror_schema: Lake schema of the mirrors.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dsn: SecretStr = SecretStr(EMBEDDED)
    schemas: tuple[str, ...] = ("public",)
    tables: tuple[str, ...] = ()
    exclude_columns: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    numeric: dict[str, Text] = Field(default_factory=dict)
    columns: dict[str, dict[str, Text]] = Field(default_factory=dict)
    mirror_schema: str = "raw"

    @field_validator("schemas")
    @classmethod
    def _has_schema(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("schemas needs at least one schema.")
        return value

    @field_validator("numeric")
    @classmethod
    def _numeric_types_are_known(cls, value: dict[str, str]) -> dict[str, str]:
        for column, text in value.items():
            _in_validator(parse_numeric, column, text)
        return value

    @field_validator("columns")
    @classmethod
    def _column_types_are_known(cls, value: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        for columns in value.values():
            for name, text in columns.items():
                _in_validator(parse_column, name, text)
        return value

    @property
    def is_embedded(self) -> bool:
        """Whether the source lives in the embedded PostgreSQL."""
        return self.dsn.get_secret_value() == EMBEDDED

    def connection(self, name: str) -> SecretStr:
        """The connection string with its variables filled in; `name` is the source's, for errors."""
        return expand_variables(self.dsn.get_secret_value(), f"source {name!r}")

    def table_name(self, text: str) -> TableName:
        """A table given as `table` or `schema.table`; the first schema of the search path is the default."""
        schema, _, name = text.rpartition(".")
        return TableName(schema or self.schemas[0], name)

    def mirror_of(self, table: TableName) -> TableName:
        """The lake table that mirrors a source table: `raw.orders`, or `raw.sales_orders` beyond the first schema."""
        name = table.name if table.schema == self.schemas[0] else f"{table.schema}_{table.name}"
        return TableName(self.mirror_schema, name)

    def excluded_columns(self, table: TableName) -> frozenset[str]:
        """Columns that the mirror of a table leaves out."""
        return frozenset(
            column
            for text, columns in self.exclude_columns.items()
            if self.table_name(text) == table
            for column in columns
        )


def _in_validator(parse: Any, name: str, text: str) -> None:
    try:
        parse(name, text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


class LakeConfig(BaseModel):
    """Where the lake is.

    Attributes:
        catalog: Connection string of the catalog's PostgreSQL, best as `${VARIABLE}`; `embedded` by default.
        catalog_schema: Schema of the catalog's tables; the setting `ducklake_catalog_schema` when left out.
        data_path: Folder or object storage prefix of the files; `.pgtrickle/lake` in the project by default.
        storage: Options of the object store (`endpoint`, `region`, `access_key_id`, `secret_access_key`, ...), best
            as `${VARIABLE}`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    catalog: SecretStr = SecretStr(EMBEDDED)
    catalog_schema: str | None = None
    data_path: str | None = None
    storage: dict[str, SecretStr] = Field(default_factory=dict)

    @property
    def is_embedded(self) -> bool:
        """Whether the catalog lives in the embedded PostgreSQL."""
        return self.catalog.get_secret_value() == EMBEDDED

    def connection(self) -> SecretStr:
        """The catalog's connection string with its variables filled in."""
        return expand_variables(self.catalog.get_secret_value(), "the lake's catalog")

    def storage_options(self) -> dict[str, SecretStr]:
        """Options of the object store with their variables filled in."""
        return {
            name: expand_variables(value.get_secret_value(), f"storage option {name!r}")
            for name, value in self.storage.items()
        }


class ProjectConfig(BaseModel):
    """The content of `pgtrickle.yaml`.

    Attributes:
        name: Name of the project; the folder's by default.
        sources: Databases by name; one embedded source called `postgres` by default.
        lake: Where the lake is.
        defaults: Options for stream tables whose block says nothing.
        settings: Overrides of settings (see the list of settings), weaker than the environment.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = None
    sources: dict[str, SourceConfig] = Field(default_factory=lambda: {"postgres": SourceConfig()})
    lake: LakeConfig = Field(default_factory=LakeConfig)
    defaults: StreamTableOptions = Field(default_factory=StreamTableOptions)
    settings: dict[str, Any] = Field(default_factory=dict)

    @field_validator("sources")
    @classmethod
    def _names_are_plain(cls, value: dict[str, SourceConfig]) -> dict[str, SourceConfig]:
        for name in value:
            if not _SOURCE_NAME.match(name) or name == "lake":
                raise ValueError(
                    f"source name {name!r} is not allowed; use letters, digits and underscores, not 'lake'."
                )
        return value


def read_project_config(root: Path) -> ProjectConfig:
    """Reads `pgtrickle.yaml` of a project folder.

    Raises:
        ConfigurationError: When the folder or the file is missing.
        SourceLocationError: For a mistake in the file.
    """
    file = root / PROJECT_FILE
    if not file.is_file():
        what = "has no pgtrickle.yaml" if root.is_dir() else "is not a folder"
        raise ConfigurationError(
            f"{root} {what}, so it is not a project.", hint=f"Run `pgtrickle init {root}` to make one."
        )
    document = read_document(read_text(file, PROJECT_FILE), PROJECT_FILE)
    return validate(ProjectConfig, document)
