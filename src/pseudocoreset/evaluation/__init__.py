"""Scores of posteriors."""
