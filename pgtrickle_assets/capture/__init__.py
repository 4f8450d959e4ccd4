"""Change capture from PostgreSQL by triggers: install, read in batches by commit visibility, trim."""
