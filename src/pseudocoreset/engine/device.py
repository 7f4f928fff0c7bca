"""Which device a run uses."""

import torch

from pseudocoreset.errors import UserError


def choose_device(name: str) -> torch.device:
    """`auto` takes a CUDA device where there is one, otherwise the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise UserError(f"--device {name} is not known: give auto, cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda was asked for and PyTorch sees no CUDA device: give cpu.")
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """The device in words, for what is stored beside a figure."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
