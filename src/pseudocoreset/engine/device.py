"""Which device a run uses."""

import torch

from pseudocoreset.errors import UserError

DeviceLike = str | torch.device


def choose_device(device: DeviceLike) -> torch.device:
    """The device of this name.

    Args:
        device: `auto` (a CUDA device if there is one), `cpu`, `cuda`, `cuda:1`, or a
            `torch.device`
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError):
        place = torch.device("meta")
    if place.type not in ("cpu", "cuda"):
        raise UserError(
            f"`device` {device} is not known: give auto, cpu, cuda or cuda:N.", "device"
        )
    if place.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError(
            f"`device` {device}: PyTorch finds no CUDA device; give cpu or auto.", "device"
        )
    if place.index is not None and place.index >= torch.cuda.device_count():
        raise UserError(
            f"`device` {device}: PyTorch finds {torch.cuda.device_count()} CUDA devices.", "device"
        )
    if place.index not in (None, torch.cuda.current_device()):
        torch.cuda.set_device(place)  # captured steps and streams are those of the current device
    return torch.device("cuda") if place.index is None else place


def device_name(device: torch.device) -> str:
    """The name of the device, to be stored with results."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
