"""The sections of a report."""
