"""Attacks on this installation, with synthetic neighbouring tables."""
