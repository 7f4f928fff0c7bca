"""Data sets: one reader per format; all return `Data`."""

from pseudocoreset.data.columns import Column, encode_rows
from pseudocoreset.data.dataset import Data, Scaling, Split
from pseudocoreset.data.from_arrays import from_arrays
from pseudocoreset.data.from_dataset import from_dataset
from pseudocoreset.data.load import load_data

__all__ = [
    "Column",
    "Data",
    "Scaling",
    "Split",
    "encode_rows",
    "from_arrays",
    "from_dataset",
    "load_data",
]
