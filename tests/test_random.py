"""Seeds by purpose."""

import torch

from pseudocoreset.engine.random import Rng, seed_for

CPU = torch.device("cpu")


def numbers(generator: torch.Generator, count: int = 1000) -> torch.Tensor:
    return torch.randn(count, generator=generator)


def test_seeds_are_known_forever() -> None:
    """A store or run begun with an older version must go on as it would have gone on."""
    assert seed_for(0, "expert", 3) == seed_for(0, "expert", 3)
    assert seed_for(0) == 2631537505891389924
    assert seed_for(7, "update", 17, "device") == 1159086745949198563


def test_seeds_differ_by_seed_and_purpose() -> None:
    purposes = [("expert", n) for n in range(500)] + [("update", n) for n in range(500)]
    purposes += [("expert", "1"), ("expert1",), ("ex", "pert", 1), (), (1,)]
    seeds = {seed_for(seed, *purpose) for seed in range(3) for purpose in purposes}
    assert len(seeds) == 3 * len(purposes)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_purposes_are_unrelated() -> None:
    rng = Rng(CPU, 0)
    streams = [numbers(rng.device), numbers(rng.host)]
    for purpose in (("expert", 0), ("expert", 1), ("update", 0)):
        rng.reseed(0, *purpose)
        streams += [numbers(rng.device), numbers(rng.host)]
    correlations = torch.corrcoef(torch.stack(streams)) - torch.eye(len(streams))
    assert correlations.abs().max() < 4.5 / 1000**0.5


def test_reseed_restores_both_streams_in_place() -> None:
    rng = Rng(CPU, 5, "chain", 2)
    device, host = rng.device, rng.host
    first = numbers(rng.device), numbers(rng.host)
    rng.reseed(5, "chain", 3)
    other = numbers(rng.device)
    rng.reseed(5, "chain", 2)
    assert rng.device is device
    assert rng.host is host
    assert torch.equal(numbers(rng.device), first[0])
    assert torch.equal(numbers(rng.host), first[1])
    assert not torch.equal(other, first[0])


def test_choices_are_uniform_and_leave_the_device_stream_alone() -> None:
    rng = Rng(CPU, 1)
    before = rng.device.get_state()
    counts = torch.tensor([rng.choose(7) for _ in range(7000)]).bincount(minlength=7)
    assert len(counts) == 7
    assert ((counts - 1000) ** 2 / 1000).sum() < 22.5  # 6 degrees of freedom: 1 in 1000
    assert torch.equal(rng.device.get_state(), before)
    assert rng.choose(1) == 0


def test_streams_beside_follow_the_seed_and_are_unrelated() -> None:
    rng = Rng(CPU, 5, "update", 1)
    one, two = rng.side(), rng.side()
    all_three = (rng, one, two)
    first = [numbers(r.device) for r in all_three]
    assert all(not torch.equal(a, b) for i, a in enumerate(first) for b in first[:i])
    rng.reseed(5, "update", 2)
    assert all(not torch.equal(numbers(r.device), a) for r, a in zip(all_three, first, strict=True))
    rng.reseed(5, "update", 1)
    assert all(torch.equal(numbers(r.device), a) for r, a in zip(all_three, first, strict=True))
    later = Rng(CPU, 5, "update", 1).side()  # as in a run that goes on
    assert torch.equal(numbers(later.device), first[1])
