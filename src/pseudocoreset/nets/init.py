"""Random initial weights from an explicit generator."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .weights import Layout, Weights

_CPU = torch.device("cpu")


class UniformInit:
    """PyTorch's default init of convolutions, linear layers and norms in one draw.

    Each weight and bias of a convolution or linear layer is U(−1/√fan_in, 1/√fan_in), a norm's
    weight is 1 and its bias 0. So θ = offset + bound · U(−1, 1), element by element. Buffers, the
    running statistics of BatchNorm, start at mean 0, variance 1 and count 0.
    """

    def __init__(self, module: nn.Module) -> None:
        # Nothing but its shapes is read, so it may be on the meta device.
        self._module = module
        self._constants: dict[torch.device, tuple[Tensor, ...]] = {}

    def __call__(self, generator: torch.Generator) -> Weights:
        """New weights on the generator's device."""
        if generator.device not in self._constants:
            # Made on the CPU, since a copy from there is waited for: what runs beside, on another
            # stream of the GPU, would not wait for kernels that make them.
            made = _uniform_constants(self._module)
            self._constants[generator.device] = tuple(part.to(generator.device) for part in made)
        offset, bound, buffers = self._constants[generator.device]
        draw = torch.empty_like(offset).uniform_(-1, 1, generator=generator)
        return Weights(draw.mul_(bound).add_(offset), buffers.clone())


def _uniform_constants(module: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    """Offset and bound of each parameter and the first values of the buffers, as flat vectors."""
    offsets: dict[str, Tensor] = {}
    bounds: dict[str, Tensor] = {}
    for prefix, layer in module.named_modules():
        weighted = isinstance(layer, nn.Conv2d | nn.Linear)
        bound = layer.weight[0].numel() ** -0.5 if weighted else 0.0
        for name, tensor in layer.named_parameters(prefix, recurse=False):
            offset = 1.0 if not weighted and name.endswith("weight") else 0.0
            offsets[name] = torch.full(tensor.shape, offset, device=_CPU)
            bounds[name] = torch.full(tensor.shape, bound, device=_CPU)
    buffers = {
        name: torch.full(tensor.shape, float(name.endswith("running_var")), device=_CPU)
        for name, tensor in module.named_buffers()
    }
    return _flat(offsets, _CPU), _flat(bounds, _CPU), _flat(buffers, _CPU)


def rebuilt_weights(build: Callable[[], nn.Module], generator: torch.Generator) -> Weights:
    """Weights of a module built anew: whatever init it has, seeded from the generator.

    The global generator of the CPU is what a module's own init draws from; it is left as it was.
    """
    device = generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=device).item())
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would reseed the CUDA devices as well.
        torch.default_generator.manual_seed(seed)
        module = build()
    params: dict[str, Tensor] = dict(module.named_parameters())
    return Weights(_flat(params, device), _flat(dict(module.named_buffers()), device))


def _flat(tensors: dict[str, Tensor], device: torch.device) -> Tensor:
    """One flat float32 vector, which shares no memory with the tensors."""
    if not tensors:
        return torch.empty(0, device=device)
    return Layout(tensors.items()).vector(tensors).detach().to(device, torch.float32)
