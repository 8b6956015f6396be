"""Measured claims, one script each; `make bench` runs them all."""
