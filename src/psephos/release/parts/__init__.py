"""Releases in declared parts: the same tables for the nation, every state and every county."""
