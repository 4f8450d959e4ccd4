"""SQL text in PostgreSQL's dialect to a typed plan, and the plan back to SQL for Spark and DuckDB."""
