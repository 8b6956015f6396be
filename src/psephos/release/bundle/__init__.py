"""Bundles on disk: requests, files, writing."""
