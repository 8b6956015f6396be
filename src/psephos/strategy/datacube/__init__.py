"""Strategies for cuboids of a data cube (Yaroslavtsev et al. 2013)."""
