"""Scores of a posterior: predictions averaged over its samples, and how good they are."""
