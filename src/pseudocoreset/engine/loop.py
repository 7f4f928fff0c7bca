"""Repeated steps: called on a CPU, captured and replayed as a CUDA graph on a GPU."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from inspect import ismethod
from typing import ParamSpec, TypeVar
from weakref import WeakMethod, WeakValueDictionary

import torch
from torch import Tensor

State = dict[str, Tensor]
"""Tensors by name that a step reads and changes."""

P = ParamSpec("P")
R = TypeVar("R")

_MEMORY: WeakValueDictionary[torch.cuda.Stream, torch.cuda.MemPool] = WeakValueDictionary()
_WARM_UP = 3  # calls before capture: cuDNN chooses its kernels, lazy allocations happen


class Loop:
    """state ← step(state), in place.

    `step` gets the whole state and returns the entries it changes; it may draw from `generator`
    and must neither wait for the device nor branch on a value. Then one code runs plainly on a CPU
    and as a replayed graph on CUDA, where a small training step is otherwise bound by launches.
    """

    def __init__(self, step: Callable[[State], State], generator: torch.Generator) -> None:
        self.state: State = {}
        # A step is a method of the object that holds the loop. Were that object held here in turn,
        # a captured graph and its memory would stay until Python looks for such circles.
        self._step = WeakMethod(step) if ismethod(step) else lambda: step
        self._generator = generator
        self._graph: torch.cuda.CUDAGraph | None = None
        self._memory: torch.cuda.MemPool | None = None

    def load(self, values: State) -> None:
        """Set entries of the state; their shapes and types are fixed by the first call."""
        for name, value in values.items():
            current = self.state.get(name)
            if current is None:
                self.state[name] = value.detach().clone()
                continue
            if (
                current.shape != value.shape or current.dtype != value.dtype
            ):  # copy_ would make it fit
                raise ValueError(
                    f"{name} is {tuple(current.shape)} of {current.dtype} and was given "
                    f"{tuple(value.shape)} of {value.dtype}."
                )
            current.copy_(value)

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
        # All is computed before anything is written: entries may be computed from one another,
        # and one that is just another's old value must not be written over before it is read.
        places = {value.untyped_storage().data_ptr() for value in self.state.values()}
        changed = {
            name: value.clone() if value.untyped_storage().data_ptr() in places else value
            for name, value in self._take_step().items()
        }
        for name, value in changed.items():
            self.state[name].copy_(value)

    def _take_step(self) -> State:
        step = self._step()
        assert step is not None, "a loop outlives the object whose step it takes"
        return step(self.state)

    def _capture(self) -> torch.cuda.CUDAGraph:
        before = {name: value.clone() for name, value in self.state.items()}
        seed_and_offset = self._generator.get_state()
        global_state = torch.cuda.get_rng_state(self._generator.device)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        now = torch.cuda.current_stream()
        stream = _stream_of_capture(now)
        self._memory = memory = _memory_of_steps(stream)
        stream.wait_stream(now)
        with torch.cuda.stream(stream), torch.cuda.use_mem_pool(memory), _as_captured():
            for _ in range(_WARM_UP):
                self._advance()
        now.wait_stream(stream)
        place = {"pool": memory.id, "stream": stream}
        with torch.cuda.graph(graph, **place), _as_captured():  # type: ignore[arg-type]
            self._advance()
        self._generator.set_state(seed_and_offset)
        torch.cuda.set_rng_state(global_state, self._generator.device)
        self.load(before)
        return graph


@lru_cache
def _stream_of_capture(now: torch.cuda.Stream) -> torch.cuda.Stream:
    """This one; for the default stream, on which nothing can be captured, another in its place."""
    default = now == torch.cuda.default_stream()
    return torch.cuda.Stream() if default else now  # type: ignore[no-untyped-call]


def _memory_of_steps(stream: torch.cuda.Stream) -> torch.cuda.MemPool:
    """The memory that all steps captured on a stream share; it goes with the last of them.

    They follow one another when they are replayed, and nothing but their state, which lies
    elsewhere, outlives a step. Steps of different streams run at the same time and must not share.
    """
    memory = _MEMORY.get(stream)
    if memory is None:
        memory = _MEMORY[stream] = torch.cuda.MemPool()
    return memory


@contextmanager
def _as_captured() -> Iterator[None]:
    """Products in TF32, as convolutions are; and backward steps in the calling thread.

    Another thread would have handles and workspaces of its own, and would not draw from the memory
    that the calling thread was given for its steps.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def exact_products() -> Iterator[None]:
    """Products of matrices in full float32, for what a solve would make much of their rounding."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def fastest_convolutions() -> AbstractContextManager[None]:
    """Let cuDNN try its kernels and keep the fastest: for steps that are taken by the thousand.

    To try those for float32 takes several times the memory of the step itself, so this is for the
    steps in half precision.
    """
    return torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True)


def compiled(function: Callable[P, R], device: torch.device, *, fused: bool) -> Callable[P, R]:
    """The function, compiled by PyTorch on CUDA.

    It stays as it is on a CPU, and where its layers are our own `fused` kernels: there compiling
    takes many seconds and gains little.
    """
    if device.type != "cuda" or fused:
        return function
    # Each network, size of batch and rule is a program of its own: PyTorch's limit of 8 is too few.
    torch._dynamo.config.recompile_limit = 256
    return torch.compile(
        function,
        dynamic=False,
        options={
            # It would try padded matrices, in the memory of the steps and with as much beside.
            "shape_padding": False,
            # Workers of its own would gain nothing, and take seconds to end when all else is done.
            "compile_threads": 1,
        },
    )


def compiled_anew() -> bool:
    """Whether this process compiled what no earlier one had left in the compiler's cache."""
    utilities = sys.modules.get("torch._dynamo.utils")  # which a CPU has no need to import
    return bool(utilities and utilities.counters["inductor"]["fxgraph_cache_miss"])


def training_precision(device: torch.device) -> torch.autocast:
    """Convolutions and products of training steps in bfloat16 on CUDA; as they are on a CPU.

    The weights and what is summed over steps stay in float32, and so does ConvNet's head; the
    logits of other networks are rounded to bfloat16. The rounding is far below the noise of a
    gradient from a batch.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
