"""A step done many times: called on a CPU, captured once and replayed as a CUDA graph on a GPU."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

State = dict[str, Tensor]
"""Tensors by name; what a step reads and what it changes."""

P = ParamSpec("P")
R = TypeVar("R")

_WARM_UP = 3  # calls before capture: cuDNN chooses its kernels, lazy allocations happen


class Loop:
    """state ← step(state), in place.

    `step` gets the whole state and returns the entries it changes; it may draw from `generator`
    and must neither wait for the device nor branch on a value. Then one code runs plainly on a CPU
    and as a replayed graph on CUDA, where a small training step is otherwise bound by launches.
    """

    def __init__(self, step: Callable[[State], State], generator: torch.Generator) -> None:
        self.state: State = {}
        self._step = step
        self._generator = generator
        self._graph: torch.cuda.CUDAGraph | None = None

    def load(self, values: State) -> None:
        """Set entries of the state; their shapes are fixed by the first call."""
        for name, value in values.items():
            if name in self.state:
                self.state[name].copy_(value)
            else:
                self.state[name] = value.detach().clone()

    def run(self, times: int) -> None:
        """Take `times` steps."""
        if self._generator.device.type != "cuda":
            for _ in range(times):
                self._advance()
            return
        if self._graph is None:
            self._graph = self._capture()
        for _ in range(times):
            self._graph.replay()

    def _advance(self) -> None:
        # All is computed before anything is written: entries may be computed from one another.
        for name, value in self._step(self.state).items():
            self.state[name].copy_(value)

    def _capture(self) -> torch.cuda.CUDAGraph:
        before = {name: value.clone() for name, value in self.state.items()}
        seed_and_offset = self._generator.get_state()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.backends.cudnn.flags(enabled=True, benchmark=True):
            for _ in range(_WARM_UP):
                self._advance()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph), torch.backends.cudnn.flags(enabled=True, benchmark=True):
            self._advance()
        self._generator.set_state(seed_and_offset)
        self.load(before)
        return graph


def compiled(function: Callable[P, R], device: torch.device) -> Callable[P, R]:
    """The function with its kernels fused on CUDA; itself on a CPU, where compiling costs more."""
    if device.type != "cuda":
        return function
    return torch.compile(function, dynamic=False)
