"""Dagster assets, checks and jobs of a project."""
