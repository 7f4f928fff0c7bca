"""Estimate the cost of a command from a few of its steps."""
