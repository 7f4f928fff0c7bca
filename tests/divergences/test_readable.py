"""The methods' code says what is computed; how it is made fast is the engine's."""

import re
from pathlib import Path

import pytest

from pseudocoreset import divergences

MACHINERY = re.compile(r"dtype|b?float(16|32|64)|autocast|CUDAGraph|torch\.cuda|triton")
FILES = sorted(Path(divergences.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_capture_no_kernel_no_dtype(path):
    assert not MACHINERY.search(path.read_text(encoding="utf-8"))
