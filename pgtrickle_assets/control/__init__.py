"""The control schema `pgtrickle` in the catalog's PostgreSQL: registry, frontiers, history, deliveries, provenance.

Functions here take an open psycopg cursor and never commit: what belongs to a lake snapshot is written in the very
transaction that makes the snapshot.
"""
