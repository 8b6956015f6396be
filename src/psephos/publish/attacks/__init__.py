"""Attacks on this installation, with made-up tables and temporary ledgers; none opens data."""
