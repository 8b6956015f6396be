"""The words of reports."""
