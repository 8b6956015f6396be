"""Kinds of release: how each is measured and estimated."""
