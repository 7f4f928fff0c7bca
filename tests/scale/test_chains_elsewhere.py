"""Chains that other processes run are those that run here, bit for bit."""

import own_code
import pytest
import torch

import pseudocoreset as pc
from pseudocoreset.scale import ProcessExecutor, SerialExecutor

SHORT = pc.SGHMC(epochs=4, every=2)


@pytest.fixture(scope="module")
def coreset(data):
    net = "convnet:depth=2,width=8"
    return pc.distill(data, method="random", ipc=2, net=net, progress=False)


def sampled(coreset, executor=None, sampler=SHORT, **given):
    return pc.sample(
        coreset, sampler, device="cpu", executor=executor, progress=False, **{"chains": 2, **given}
    )


@pytest.mark.parametrize("sampler", [SHORT, own_code.MySGLD(epochs=4, every=2)])
def test_samples_are_the_same_bit_for_bit(coreset, sampler):
    here = sampled(coreset, sampler=sampler)
    there = sampled(coreset, ProcessExecutor(2), sampler)
    assert torch.equal(there.params, here.params)
    assert there.details == here.details


def test_networks_of_an_ensemble_are_the_same(coreset):
    kind = pc.Ensemble(epochs=4, every=2)
    here, there = (sampled(coreset, e, kind, chains=2) for e in (None, SerialExecutor()))
    assert len(here) == 4
    assert torch.equal(there.params, here.params)


def test_scores_over_seeds_are_the_same(coreset, data):
    here, there = (
        pc.evaluate(coreset, data, SHORT, seeds=2, device="cpu", executor=executor, progress=False)
        for executor in (None, ProcessExecutor(2))
    )
    assert there.as_json() == here.as_json()
