"""Dagster resources: Spark, PostgreSQL, the refresh engine and the DuckLake IO manager."""
