"""Predictions and scores."""
