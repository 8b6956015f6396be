"""Strategies that are written down, not searched for; rivals of HDMM."""
