"""The sample tables and rendered queries on Spark."""

from __future__ import annotations

from typing import Any

from pgtrickle_assets.query.arrow_types import arrow_type
from pgtrickle_assets.query.plan import QueryPlan
from pgtrickle_assets.query.types import TIMESTAMP
from tests.integration.query.tables import BY_NAME


def spark_views(spark: Any, tables: dict[str, Any]) -> None:
    """Register Arrow tables as temporary views; Arrow's zoneless timestamps must not become zoned ones."""
    for name, table in tables.items():
        frame = spark.createDataFrame(table)
        kinds = {column.name: column.type for column in BY_NAME[name].schema().columns}
        items = [
            f"CAST(`{column}` AS TIMESTAMP_NTZ) AS `{column}`" if kinds[column] == TIMESTAMP else f"`{column}`"
            for column in table.column_names
        ]
        frame.selectExpr(*items).createOrReplaceTempView(name)


def spark_rows(spark: Any, sql: str, plan: QueryPlan) -> list[tuple[Any, ...]]:
    """The rows of a query; names and types of its columns must be the plan's."""
    result = spark.sql(sql).toArrow()
    assert result.column_names == [schema.name for schema in plan.output]
    for field, schema in zip(result.schema, plan.output, strict=True):
        if schema.type.element is None:
            assert field.type == arrow_type(schema.type), f"{schema.name}: {field.type} is not {schema.type}"
    return [tuple(row[name] for name in result.column_names) for row in result.to_pylist()]
