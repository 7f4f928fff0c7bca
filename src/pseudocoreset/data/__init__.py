"""Data sets: one reader a format, all giving the same `ImageData`."""

from pseudocoreset.data.from_dataset import from_dataset
from pseudocoreset.data.image_data import ImageData, Normalisation, Split
from pseudocoreset.data.load import load_data

__all__ = ["ImageData", "Normalisation", "Split", "from_dataset", "load_data"]
