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
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError


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
    """What can change the last bits of a result: device, number of threads, versions.

    Args:
        device: where it was computed
    """
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def refuse_other(made: object, device: torch.device, where: object) -> None:
    """Raise an error when resuming work of another kind of device or version.

    What says nothing of it, as files from before this was recorded, is not refused.

    Args:
        made: what `made_on` said of it, as a file has it
        device: where it is to go on
        where: what was begun
    """
    found = made if isinstance(made, dict) else {}
    kept = found.get("versions")
    there = kept if isinstance(kept, dict) else {}
    here = versions()
    pairs = {name: (there.get(name), here[name]) for name in ("pseudocoreset", "torch")}
    if "device" in found and (found["device"] == "cpu") != (device.type == "cpu"):
        pairs = {"device": (found["device"], device.type), **pairs}
    for name, (before, now) in pairs.items():
        # A build for another device, 2.13.0+cpu, is the same version.
        if before is not None and str(before).partition("+")[0] != now.partition("+")[0]:
            raise UserError(
                f"{where} was started with {name} {printable(before)}, not {now}: give "
                "`other_versions` to resume anyway, or another `out`.",
                "other_versions",
            )
