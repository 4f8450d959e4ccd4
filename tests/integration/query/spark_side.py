"""The sample tables and rendered queries on Spark."""

from __future__ import annotations

from typing import Any

from pgtrickle_assets.query.arrow_types import arrow_type
from pgtrickle_assets.query.plan import QueryPlan


def spark_views(spark: Any, tables: dict[str, Any]) -> None:
    """Register Arrow tables as temporary views."""
    for name, table in tables.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)


def spark_rows(spark: Any, sql: str, plan: QueryPlan) -> list[tuple[Any, ...]]:
    """The rows of a query; names and types of its columns must be the plan's."""
    result = spark.sql(sql).toArrow()
    assert result.column_names == [schema.name for schema in plan.output]
    for field, schema in zip(result.schema, plan.output, strict=True):
        if schema.type.element is None:
            assert field.type == arrow_type(schema.type), f"{schema.name}: {field.type} is not {schema.type}"
    return [tuple(row[name] for name in result.column_names) for row in result.to_pylist()]
