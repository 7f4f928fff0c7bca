"""Networks of your own: classes or functions that build a module. They are tested before use."""

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pseudocoreset.engine.plugins import described
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError

from .net import Net


@lru_cache(maxsize=64)
def own_net(
    spec: str, factory: Callable[..., Any], input_shape: tuple[int, ...], outputs: int
) -> Net:
    """The network that the factory builds; the same object as long as the factory is.

    What is compiled for a network hangs on it. Every parameter of the module is trained, one with
    `requires_grad=False` too.

    Args:
        spec: the factory's name
        factory: called as (channels, image_size, classes) for images, (features, outputs) for rows
        input_shape: (channels, height, width) or (features,)
        outputs: how many numbers it must give for an input
    """
    name = printable(spec)
    build = partial(_built, name, factory, input_shape, outputs)
    # Trying the module must not move the global random state of a user's own program.
    with torch.random.fork_rng(devices=[]):
        module = build()
        if module is build():
            raise _refusal(f"The network {name} is the same module at each call: build a new one.")
        _check_weights(name, module)
        for number in (2, 3):
            _dry_run(name, module, torch.zeros(number, *input_shape), outputs)
    return Net(
        spec,
        build,
        input_shape=input_shape,
        outputs=outputs,
        default_init=False,
        source_digest=source_digest(factory),
    )


def source_digest(factory: Callable[..., Any]) -> str | None:
    """A digest of the file that defines the factory; None if there is no such file.

    Args:
        factory: a class, a function, or a partial of one
    """
    while isinstance(factory, partial):
        factory = factory.func
    try:
        file = inspect.getsourcefile(factory)
        text = Path(file).read_bytes() if file else None
    except (TypeError, OSError):  # a built-in one, or typed in a notebook
        return None
    return None if text is None else blake2b(text, digest_size=16).hexdigest()


def _refusal(message: str) -> UserError:
    return UserError(message, parameter="net")


def _built(
    name: str, factory: Callable[..., Any], input_shape: tuple[int, ...], outputs: int
) -> nn.Module:
    called: tuple[int, ...]
    if len(input_shape) == 3:
        called, words = (input_shape[0], input_shape[1], outputs), "channels, image_size, classes"
    else:
        called, words = (*input_shape, outputs), "features, outputs"
    try:
        module = factory(*called)
    except UserError as error:
        raise UserError(str(error), parameter=error.parameter or "net") from error
    except Exception as error:
        raise _refusal(
            f"The network {name}, called with {called} for ({words}), failed with "
            f"{described(error)}: give a class or function that takes these {len(called)} numbers."
        ) from error
    if not isinstance(module, nn.Module):
        raise _refusal(f"The network {name} gave a {type(module).__name__}, not a torch.nn.Module.")
    return module


def _check_weights(name: str, module: nn.Module) -> None:
    """Refuse what can't be kept as flat float32 vectors."""
    if any(isinstance(tensor, nn.UninitializedParameter) for tensor in module.parameters()):
        raise _refusal(f"The network {name} has lazy layers: give them their sizes.")
    if not list(module.parameters()):
        raise _refusal(f"The network {name} has no parameters: register them in its module.")
    if any(tensor.is_complex() for tensor in [*module.parameters(), *module.buffers()]):
        raise _refusal(f"The network {name} has complex weights: use real ones.")


def _dry_run(name: str, module: nn.Module, inputs: torch.Tensor, outputs: int) -> None:
    """Send blank inputs through the module in either mode and look at what comes out.

    Its weights are what they will be: float32, and trained.
    """
    module.float().requires_grad_(True)
    batch = "×".join(map(str, inputs.shape))
    for layer in module.modules():
        if isinstance(layer, nn.GroupNorm | nn.InstanceNorm2d):
            layer.register_forward_pre_hook(_refuse_single_value)
    for mode in ("training", "test"):
        try:
            with torch.enable_grad():
                found = module.train(mode == "training")(inputs)
        except UserError as error:
            raise _refusal(f"The network {name} can't take inputs of {batch}: {error}") from error
        except Exception as error:
            raise _refusal(
                f"The network {name} failed in {mode} mode on inputs of {batch} with "
                f"{described(error)}."
            ) from error
        good = isinstance(found, torch.Tensor) and found.is_floating_point()
        if not (good and found.shape == (len(inputs), outputs)):
            raise _refusal(
                f"The network {name} gave {_kind(found)} for inputs of {batch}, not floats of "
                f"{len(inputs)}×{outputs}."
            )
        if not found.requires_grad:
            raise _refusal(
                f"The network {name} gave outputs through which no gradient flows to its weights: "
                "don't detach them."
            )


def _refuse_single_value(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Refuse a norm that sees one value at a time, of which it keeps nothing but its own bias."""
    groups = layer.num_groups if isinstance(layer, nn.GroupNorm) else inputs[0].shape[1]
    if inputs[0][0].numel() == groups:
        raise _refusal(
            "an instance norm on 1×1 feature maps keeps nothing but its bias. "
            "Use fewer layers or another norm."
        )


def _kind(output: object) -> str:
    if isinstance(output, torch.Tensor):
        return f"{output.dtype} of {'×'.join(map(str, output.shape)) or 'no dimension'}"
    return f"a {type(output).__name__}"
