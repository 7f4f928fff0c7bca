"""Pseudocoresets: storing, showing and exporting synthetic points."""

from pseudocoreset.coreset.pseudocoreset import KIND, Provenance, Pseudocoreset, whole_data

__all__ = ["KIND", "Provenance", "Pseudocoreset", "whole_data"]
