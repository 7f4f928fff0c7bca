"""Work beside other work."""

from types import TracebackType

import torch


class Beside:
    """A line of work of its own: a stream on CUDA; on a CPU, work done in turn.

        with beside:
            begun here, after all that was begun before
        other work
        beside.wait()

    Small steps leave most of a GPU idle, and two loops side by side fill it better. What runs
    beside must draw from a generator of its own.
    """

    def __init__(self, device: torch.device) -> None:
        cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if cuda else None  # type: ignore[no-untyped-call]
        self._context: torch.cuda.StreamContext | None = None

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
        """What is begun from now on waits for all that was begun beside."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
