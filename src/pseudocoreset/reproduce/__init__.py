"""Measure the paper's tables cell by cell and render them."""
