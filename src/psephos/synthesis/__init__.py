"""Synthetic tables: made-up rows that answer like a model of the data."""
