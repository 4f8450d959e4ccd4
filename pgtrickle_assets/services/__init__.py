"""What the product runs on when nothing else is configured: PostgreSQL, Java, Spark and DuckDB from wheels."""
