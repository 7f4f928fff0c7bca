"""Run work on a separate CUDA stream."""

from collections import defaultdict
from types import TracebackType
from weakref import finalize

import torch

_FREE: defaultdict[torch.device, list[torch.cuda.Stream]] = defaultdict(list)
"""Streams that nobody holds. PyTorch itself has but 32, and gives them out again while they are in
use: two lines of work would then share one, and with it what must not be shared."""


class SideStream:
    """A line of work of its own: a stream on CUDA; work done in turn on a CPU, or if not `apart`.

        with side:
            begun here, after all that was begun before
        other work
        side.wait()

    Small steps leave most of a GPU idle, and two loops side by side fill it better. What runs
    on the side must draw from a generator of its own.
    """

    def __init__(self, device: torch.device, *, apart: bool = True) -> None:
        self._stream: torch.cuda.Stream | None = None
        self._context: torch.cuda.StreamContext | None = None
        if device.type == "cuda" and apart:
            free = _FREE[device]
            self._stream = free.pop() if free else torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            finalize(self, free.append, self._stream)

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
            self._context = torch.cuda.stream(self._stream)
            self._context.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._context is not None:
            self._context.__exit__(kind, error, trace)

    def wait(self) -> None:
        """What is begun from now on waits for all that was begun on the side."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
