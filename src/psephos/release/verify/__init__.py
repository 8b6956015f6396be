"""Verification of a bundle without the data."""
