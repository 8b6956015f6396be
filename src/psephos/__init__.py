"""Answers to a whole workload of counting queries under differential privacy."""
