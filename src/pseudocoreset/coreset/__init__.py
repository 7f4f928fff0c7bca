"""The pseudocoreset itself: a few synthetic points, how they are stored, shown and exported."""

from pseudocoreset.coreset.pseudocoreset import KIND, Provenance, Pseudocoreset, whole_data

__all__ = ["KIND", "Provenance", "Pseudocoreset", "whole_data"]
