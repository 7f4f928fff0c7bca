"""Randomness by seed and purpose.

Checkpoints need no random state: the random numbers of update 17 depend only on the run's seed and
on "update 17". So a resumed run draws the same numbers as an uninterrupted one.
"""

import hashlib

import torch


def seed_for(seed: int, *purpose: object) -> int:
    """A 63-bit seed for one purpose of a run, unrelated to the seeds of other purposes."""
    digest = hashlib.blake2b(repr((seed, *purpose)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class Rng:
    """Two generators: `device` for tensors where the work is, `host` for choices made in Python.

    A choice in Python (which expert, say) from a CUDA generator would wait for the device.
    """

    def __init__(self, device: torch.device, seed: int, *purpose: object) -> None:
        self.device = torch.Generator(device)
        self.host = torch.Generator()
        self._side: list[Rng] = []
        self.reseed(seed, *purpose)

    def reseed(self, seed: int, *purpose: object) -> None:
        """Start both streams anew; the generators stay the same objects, as CUDA graphs need."""
        self.device.manual_seed(seed_for(seed, *purpose, "device"))
        self.host.manual_seed(seed_for(seed, *purpose, "host"))
        self._now = (seed, purpose)
        for number, other in enumerate(self._side):
            other.reseed(seed, *purpose, "beside", number)

    def side(self) -> "Rng":
        """Streams for work on the side, which restart whenever these do."""
        seed, purpose = self._now
        other = Rng(self.device.device, seed, *purpose, "beside", len(self._side))
        self._side.append(other)
        return other

    def choose(self, number: int) -> int:
        """A whole number in [0, number), without waiting for the device."""
        return int(torch.randint(number, (), generator=self.host))
