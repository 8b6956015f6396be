"""Attacks on this installation, with made-up neighbours."""
