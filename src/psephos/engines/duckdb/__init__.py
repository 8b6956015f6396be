"""Entries to cells, rows to counts: DuckDB reads and numpy adds up, for every engine."""
