"""Devices, captured steps, files, options, progress and randomness."""
