"""Captured and compiled against plain, on one CUDA device; run by test_cuda.py in a process of its
own, since torch.compile can't trace what the tests' type checker wraps."""

import sys
import tempfile

import torch

from pseudocoreset import DistillSettings, ExpertSettings, distill, load_data, train_experts
from pseudocoreset.engine import loop
from pseudocoreset.posterior import named_protocol, sample_posterior

NET = "convnet:width=16"


def plainly() -> None:
    """Take the capture and the compiler out of the engine: the same steps, one kernel at a time."""
    loop.Loop.run = lambda self, times: [self._advance() for _ in range(times)] and None
    loop.torch.compile = lambda function, **_: function


def results() -> dict[str, torch.Tensor]:
    data = load_data("digits")
    with tempfile.TemporaryDirectory() as folder:
        settings = ExpertSettings(num=2, epochs=3, lr=0.1, batch=64)
        store = train_experts(data, NET, folder, settings, device="cuda")
        last = store.snapshot(store.trajectories[1], 3, torch.device("cpu"))
        wanted = DistillSettings(ipc=2, steps=2, gamma=1.0, from_epoch=2, draws=2, batch=15)
        coreset = distill(data, store, wanted, device="cuda")
    protocol = named_protocol("paper", epochs=20, every=10, batch=15)
    posterior = sample_posterior(coreset, protocol=protocol, device="cuda")
    images = coreset.images
    return {"expert": last.params, "coreset": images, "posterior": posterior.params.cpu()}


def main() -> None:
    if sys.argv[1] == "plain":
        plainly()
    torch.save(results(), sys.argv[2])


if __name__ == "__main__":
    main()
