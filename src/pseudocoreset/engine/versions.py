"""The versions that a figure or a file was made with."""

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy
import torch

from pseudocoreset.engine.device import device_name


@cache
def code_digest() -> str:
    """A digest of the package's own source, which names the code where a version does not."""
    folder = Path(__file__).parent.parent
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """The versions of the package, its code, PyTorch, NumPy and Python."""
    try:
        own = version("pseudocoreset")
    except PackageNotFoundError:  # run from a source tree that is not installed
        own = "source"
    return {
        "pseudocoreset": own,
        "code": code_digest(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def made_on(device: torch.device) -> dict[str, Any]:
    """What the last bits of a result hang on: device, number of threads, versions.

    Args:
        device: where it was computed
    """
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }
