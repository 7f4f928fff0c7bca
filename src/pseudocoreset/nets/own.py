"""A person's own network: `package.module:factory`, imported, built and tried before it is used."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from pseudocoreset.engine.plugins import described, imported
from pseudocoreset.errors import UserError

from .net import Net


def make_own_net(spec: str, *, channels: int, image_size: int, classes: int) -> Net:
    """The network that `factory(channels, image_size, classes) -> nn.Module` builds.

    Every parameter of the module is trained, one with `requires_grad=False` too.
    """
    return _net_of(spec, imported(spec, "network"), channels, image_size, classes)


@lru_cache(maxsize=64)
def _net_of(
    spec: str, factory: Callable[..., Any], channels: int, image_size: int, classes: int
) -> Net:
    """The same object as long as the factory is; what is compiled for a network hangs on it."""

    def build() -> nn.Module:
        return _built(spec, factory, channels, image_size, classes)

    # Trying the module must not move the global random state of a person's own program.
    with torch.random.fork_rng(devices=[]):
        module = build()
        if module is build():
            raise UserError(
                f"the network factory {spec} returns the same module at each call; "
                "let it build a new one"
            )
        _check_weights(spec, module)
        for images in (2, 3):
            _dry_run(spec, module, torch.zeros(images, channels, image_size, image_size), classes)
    return Net(
        spec, build, channels=channels, image_size=image_size, classes=classes, default_init=False
    )


def _built(
    spec: str, factory: Callable[..., Any], channels: int, image_size: int, classes: int
) -> nn.Module:
    try:
        module = factory(channels, image_size, classes)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the network factory {spec}, called with ({channels}, {image_size}, {classes}), "
            f"failed with {described(error)}; let it take channels, image_size and classes"
        ) from error
    if not isinstance(module, nn.Module):
        raise UserError(
            f"the network factory {spec} returned a {type(module).__name__}; "
            "let it return a torch.nn.Module"
        )
    return module


def _check_weights(spec: str, module: nn.Module) -> None:
    """Refuse what can't be kept as flat float32 vectors."""
    if any(isinstance(tensor, nn.UninitializedParameter) for tensor in module.parameters()):
        raise UserError(f"the network {spec} has lazy layers; give them their sizes")
    if not list(module.parameters()):
        raise UserError(f"the network {spec} has no parameters; register them in its module")
    if any(tensor.is_complex() for tensor in [*module.parameters(), *module.buffers()]):
        raise UserError(f"the network {spec} has complex weights; use real ones")


def _dry_run(spec: str, module: nn.Module, images: torch.Tensor, classes: int) -> None:
    """Send the blank images through the module in either mode and look at what comes out.

    Its weights are what they will be: float32, and trained.
    """
    module.float().requires_grad_(True)
    batch = "×".join(map(str, images.shape))
    for layer in module.modules():
        if isinstance(layer, nn.GroupNorm | nn.InstanceNorm2d):
            layer.register_forward_pre_hook(_refuse_single_value)
    for mode in ("training", "test"):
        try:
            with torch.enable_grad():
                output = module.train(mode == "training")(images)
        except UserError as error:
            raise UserError(f"the network {spec} can't take {batch} images: {error}") from error
        except Exception as error:
            raise UserError(
                f"the network {spec} failed in {mode} mode on images of {batch} with "
                f"{described(error)}; let its module take a batch of such images"
            ) from error
        good = isinstance(output, torch.Tensor) and output.is_floating_point()
        if not (good and output.shape == (len(images), classes)):
            raise UserError(
                f"the network {spec} gave {_kind(output)} for images of {batch}; "
                f"let it give logits, floats of {len(images)}×{classes}"
            )
        if not output.requires_grad:
            raise UserError(
                f"the network {spec} gave logits through which no gradient flows to its weights; "
                "let it not detach them"
            )


def _refuse_single_value(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Refuse a norm that sees one value at a time, of which it keeps nothing but its own bias."""
    groups = layer.num_groups if isinstance(layer, nn.GroupNorm) else inputs[0].shape[1]
    if inputs[0][0].numel() == groups:
        raise UserError(
            "an instance norm on 1×1 feature maps keeps nothing but its bias; "
            "use fewer layers or another norm"
        )


def _kind(output: object) -> str:
    if isinstance(output, torch.Tensor):
        return f"{output.dtype} of {'×'.join(map(str, output.shape)) or 'no dimension'}"
    return f"a {type(output).__name__}"
