"""Dagster sensors: they look, cheaply and without Spark, and ask for runs."""
