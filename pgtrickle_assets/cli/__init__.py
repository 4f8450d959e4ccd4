"""The `pgtrickle` command."""
