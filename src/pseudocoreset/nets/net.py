"""Networks as functions of their weights."""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError

from .head import Head, find_head, refuse_other_heads, without_head
from .init import UniformInit, rebuilt_weights
from .weights import Layout, Weights


class Net:
    """An architecture for inputs of one shape and a number of outputs; it holds no weights.

    `spec` is the canonical name, from which `make_net` makes the same network again. All
    parameters count, in the order of `named_parameters`: convolution's weight, its bias, norm's
    weight, its bias, ..., classifier's weight and bias.

    `apply` and `train` neither wait for the device nor look at values, so they can be compiled and
    captured in a CUDA graph. Randomness inside a user's own module (dropout) comes from
    PyTorch's global generator.

    Args:
        spec: the canonical name
        build: makes a new module of the architecture
        input_shape: (channels, height, width) of an image, or (features,) of a table's row
        outputs: the number of outputs: one logit per class, or one number per target
        default_init: whether the init is PyTorch's default, and the module our own
        source_digest: of the file that a user's own network is written in, if there is one
    """

    def __init__(
        self,
        spec: str,
        build: Callable[[], nn.Module],
        *,
        input_shape: tuple[int, ...],
        outputs: int,
        default_init: bool,
        source_digest: str | None = None,
    ) -> None:
        self.spec = spec
        self.input_shape = input_shape
        self.outputs = outputs
        self.source_digest = source_digest
        self._build = build
        self._place = torch.device("meta" if default_init else "cpu")
        # Skeletons that lend their forward pass and never their values, one in each mode, since
        # changing a shared module's mode costs time and breaks compiled code. A user's own
        # stays on the CPU: building or moving it on the meta device may fail or untie weights.
        with torch.random.fork_rng(devices=[]), self._place:
            self._training = build().train()
            self._testing = build().eval()
        self._uniform_init = UniformInit(self._training) if default_init else None
        self._params = Layout(self._training.named_parameters())
        self._buffers = Layout(self._training.named_buffers())
        self.num_params = self._params.length
        self.num_buffers = self._buffers.length
        self.fused = default_init and bool(getattr(self._testing, "fused", False))
        """Whether its layers are kernels of our own on CUDA."""
        # Of a user's own network this is not known.
        self.by_image = default_init and not any(map(_mixes_inputs, self._testing.modules()))
        """Whether an input's outputs in test mode are the same whatever inputs are beside it."""

    @cached_property
    def draws(self) -> bool:
        """Whether its training draws from PyTorch's global generator, as dropout does.

        Of that there is one a device, so two such networks can't be trained side by side there:
        each would draw what the other has.
        """
        if self._uniform_init is not None:
            return False
        weights = self.init(torch.Generator())
        inputs = torch.zeros(2, *self.input_shape)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            before = torch.get_rng_state()
            self.train(weights, inputs)
            return not torch.equal(torch.get_rng_state(), before)

    def refuse_other_weights(self, source: Path | str, sizes: tuple[int, int]) -> None:
        """Refuse stored parameters and buffers, this many of each, that are not this network's.

        Args:
            source: the file that holds them
            sizes: numbers of parameters and of buffers
        """
        if sizes != (self.num_params, self.num_buffers):
            raise UserError(
                f"{printable(source)} holds {sizes[0]:,} parameters and {sizes[1]:,} buffers a "
                f"network, and {self.spec} has {self.num_params:,} and {self.num_buffers:,}: the "
                "network has changed, so make the file again, or give the old network.",
                parameter="net",
            )

    def __repr__(self) -> str:
        size = "×".join(map(str, self.input_shape))
        return f"Net({self.spec}, {size} to {self.outputs}, {self.num_params:,} parameters)"

    def build(self) -> nn.Module:
        """A new module of the architecture on the CPU, with its own init from the global RNG."""
        with torch.device("cpu"):
            return self._build()

    def init(self, generator: torch.Generator) -> Weights:
        """Fresh random weights on the generator's device; the same state gives the same weights."""
        if self._uniform_init is not None:
            return self._uniform_init(generator)
        return rebuilt_weights(self.build, generator)

    def apply(self, weights: Weights, inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "n outputs"]:
        """Outputs in test mode; differentiable in the parameters and the inputs."""
        tensors = self.unflatten(weights.params) | self._buffers.copies(weights.buffers)
        outputs: Tensor = functional_call(self._testing, tensors, (inputs,))
        return outputs

    def train(
        self, weights: Weights, inputs: Float[Tensor, "n ..."]
    ) -> tuple[Float[Tensor, "n outputs"], Float[Tensor, " q"]]:
        """Outputs in training mode, and the buffers after it; the weights given stay as they are.

        The new buffers carry no gradient. A network without buffers returns the empty ones given.
        """
        tensors = self.unflatten(weights.params) | self._buffers.copies(weights.buffers)
        # functional_call writes what became of the buffers back into this dictionary.
        outputs: Tensor = functional_call(self._training, tensors, (inputs,))
        if self.num_buffers == 0:
            return outputs, weights.buffers
        return outputs, self._buffers.vector(tensors).detach().to(weights.buffers.dtype)

    @cached_property
    def head(self) -> Head:
        """The last linear layer; a network whose outputs are not that layer's own is refused."""
        found = find_head(self._testing, self.outputs, self.spec)
        if self._uniform_init is None:
            refuse_other_heads(self, found)
        self._headless  # noqa: B018 - made here: what is compiled can't make it
        return found

    @cached_property
    def _headless(self) -> nn.Module:
        """A skeleton in test mode that ends before the last layer."""
        with torch.random.fork_rng(devices=[]), self._place:
            return without_head(self._build().eval())

    def features(self, weights: Weights, inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "n h"]:
        """What goes into the last linear layer in test mode; differentiable as `apply` is.

        Look at `head` before this is compiled.
        """
        tensors = self.unflatten(weights.params) | self._buffers.copies(weights.buffers)
        found: Tensor = functional_call(self._headless, tensors, (inputs,))
        return found

    def with_head(
        self, weights: Weights, weight: Float[Tensor, "k h"], bias: Float[Tensor, " k"]
    ) -> Weights:
        """The weights with another last layer.

        Args:
            weights: all weights
            weight: of the last layer
            bias: of the last layer
        """
        changed = {self.head.weight: weight, self.head.bias: bias}
        return Weights(self.flatten({**self.unflatten(weights.params), **changed}), weights.buffers)

    def unflatten(self, params: Float[Tensor, " p"]) -> dict[str, Tensor]:
        """The parameters by name, as views into the flat vector."""
        return self._params.views(params)

    def flatten(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, " p"]:
        """The flat vector of tensors by parameter name; the inverse of `unflatten`."""
        return self._params.vector(tensors)


def _mixes_inputs(module: nn.Module) -> bool:
    return isinstance(module, nn.BatchNorm2d) and not module.track_running_stats
