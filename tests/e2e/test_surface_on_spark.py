"""Queries whose text differs most between DuckDB and Spark, over the whole path, against PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtrickle_assets.refresh.model import Strategy
from tests.differential.surface_runner import FOLDER, Family, plan_over, read, schemas_of
from tests.e2e.lakehouse import Lakehouse, lakehouse
from tests.integration.query.engines import multiset, postgres_answer

CHOSEN = {
    "aggregates": (
        "over_nothing", "numeric_bare", "avg_scales", "float_sums", "variance_exact", "covariance", "regression",
        "bits", "distinct_aggregates", "string_agg_ordered", "array_agg_ordered", "json_agg_ordered", "percentiles",
        "mode_of", "cube", "avg_of_avgs",
    ),
    "exactness": (
        "integer_division", "rounding_numeric", "rounding_float", "float_to_numeric", "numeric_division",
        "numeric_bare_division", "average_of_quotients", "numeric_bare_compare", "real_float_join", "float_zero_join",
        "float_nan", "float_text", "numeric_text", "concat_values", "varchar_cast", "empty_is_not_null", "text_compare",
        "text_like", "text_functions", "round_of_avg", "date_arithmetic", "date_month_ends", "date_parts",
        "date_trunc", "time_zones", "timestamp_text", "interval_parts", "uuid_bytea", "time_column", "nulls_order",
        "literals", "bit_operators",
    ),
    "joins": ("full_full", "null_safe_left", "not_in_pair_nulls", "in_as_value", "any_as_value", "not_in_under_or",
              "left_of_union_that_nothing_reads", "intersect_of_left_that_nothing_reads"),
    "sets_windows": (
        "distinct_float", "distinct_on_nulls", "except_all", "rank_no_partition", "rows_frames", "range_offset_desc",
        "range_numeric", "range_interval", "groups_frame", "lag_lead", "first_last_nth", "window_over_aggregate",
        "window_variance_exact", "limit_float", "limit_ties",
    ),
    "subqueries": (
        "scalar_order_limit", "lateral_top_left", "unnest_left", "unnest_ordinality", "series_step", "series_calendar",
        "json_elements", "json_elements_text", "json_fields", "array_scalar_subquery", "not_exists_uncorrelated",
    ),
}  # fmt: skip


def _differences(system: Lakehouse, family: Family, chosen: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    with psycopg.connect(system.source) as connection, system.duckdb() as duckdb:
        connection.execute("SET timezone = 'UTC'")
        schemas = schemas_of(connection)
        for name in chosen:
            plan = plan_over(family.queries[name], schemas)
            expected = postgres_answer(connection, family.queries[name], plan)
            actual = multiset(duckdb.execute(f"SELECT * FROM lake.st.{name}").fetchall(), plan)
            if actual != expected:
                found.append(f"{name}: missing {expected - actual}, surplus {actual - expected}")
    return found


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "chosen"), CHOSEN.items(), ids=CHOSEN)
def test_spark_maintains_what_postgres_answers(
    name: str, chosen: tuple[str, ...], new_database: Callable[[], str], tmp_path: Path, spark: object
) -> None:
    family = read(FOLDER / f"{name}.yaml")
    queries = {f"st.{query}": family.queries[query] for query in chosen}
    differences: list[str] = []
    with lakehouse(new_database, tmp_path, spark, queries, family.tables) as system:
        for result in system.refresh().values():
            assert result.strategy is Strategy.FULL
        differences += _differences(system, family, chosen)
        for batch in family.batches[:3]:
            system.execute(*batch)
            for table, result in system.refresh().items():
                wanted = (Strategy.NO_CHANGE, Strategy.DIFFERENTIAL)
                assert result.strategy in wanted, f"{table}: {result.strategy} because {result.reason}"
            differences += _differences(system, family, chosen)
        assert not differences, "\n".join(differences)
        system.check()
