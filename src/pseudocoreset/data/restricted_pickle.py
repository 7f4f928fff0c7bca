"""A safe pickle reader for dictionaries, lists, text, numbers and byte arrays."""

import io
import pickle
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pseudocoreset.errors import UserError


class PickledArray:
    """Stands in for `numpy.ndarray`, so that no pickled state ever reaches NumPy's own code."""

    __slots__ = ("content", "shape")

    def __init__(self, *_: object) -> None:
        self.shape: tuple[int, ...] = ()
        self.content = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran_order, content = state
        if not (isinstance(dtype, PickledType) and dtype.is_byte and isinstance(content, bytes)):
            raise ValueError("not an array of bytes")
        if fortran_order or any(type(side) is not int or side < 0 for side in shape):
            raise ValueError("not a plain array")
        if prod(shape) != len(content):
            raise ValueError("the shape and the size disagree")
        self.shape, self.content = tuple(shape), content

    def to_numpy(self) -> npt.NDArray[np.uint8]:
        """The array, read only."""
        return np.frombuffer(self.content, np.uint8).reshape(self.shape)


class PickledType:
    """Stands in for `numpy.dtype`, and remembers only whether it is an unsigned byte."""

    __slots__ = ("is_byte",)

    def __init__(self, name: "str | bytes", *_: object) -> None:
        self.is_byte = name in ("u1", b"u1", "|u1", b"|u1")

    def __setstate__(self, state: object) -> None:
        """Byte order and the like: nothing that a byte has."""


def _encoded(text: Any, encoding: Any) -> bytes:
    """Bytes as Python 3 writes them in protocol 2; by other encodings few bytes become many."""
    if encoding not in ("latin1", b"latin1"):
        raise ValueError("not bytes")
    return bytes(text.encode("latin1"))


ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
    ("numpy", "ndarray"): PickledArray,
    ("numpy", "dtype"): PickledType,
    ("_codecs", "encode"): _encoded,
}


class _RefusedError(Exception):
    """The pickle asked for something that isn't admitted."""


# The reader in Python, not the one in C: the latter makes a table as long as the largest number
# in the file's table of contents, so that one flipped bit can take all memory.
class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Only what is admitted; nothing is ever imported."""
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise _RefusedError(f"{module}.{name}") from None


def load_pickle(path: Path) -> Any:
    """What a file pickled, with its text as bytes, as Python 2 wrote it."""
    try:
        return _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except _RefusedError as asked:
        raise UserError(
            f"{path}: the pickle asks for {asked}, which a CIFAR file never does; don't trust "
            "it, and download the archive again from its source."
        ) from None
    except OSError:
        raise
    # Damaged opcodes can raise nearly anything: IndexError, KeyError, TypeError, MemoryError ...
    except Exception:
        raise UserError(
            f"{path}: expected a whole pickle, found a damaged or truncated one; download or "
            "unpack the archive again."
        ) from None
