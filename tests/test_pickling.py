"""Objects of the public interface go through pickle, as multiprocessing needs it."""

import copy
import pickle

import pytest
import torch

import pseudocoreset as pc
from pseudocoreset.posterior.protocols import sampler_name


@pytest.mark.parametrize("net", ["convnet:width=8", "mlp:width=8"])
def test_posterior_predicts_the_same_after_pickle(net, data):
    coreset = pc.distill(data, method="random", ipc=1, net=net, progress=False)
    sampler = pc.SGHMC(epochs=2, every=1)
    posterior = pc.sample(coreset, sampler, chains=1, device="cpu", progress=False)
    again = pickle.loads(pickle.dumps(posterior))
    inputs = data.test.inputs[:3]
    assert torch.equal(again.predict(inputs).probs, posterior.predict(inputs).probs)


def test_expert_store_survives_pickle(store):
    again = pickle.loads(pickle.dumps(store))
    assert again.identity == store.identity
    assert again.path == store.path


def test_data_compare_without_error(data):
    assert data == data
    assert data != copy.deepcopy(data)
    assert len({data, data}) == 1


def test_sampler_that_derives_from_ours_has_its_own_name():
    class Mine(pc.SGLD):
        pass

    assert sampler_name(pc.SGLD()) == "sgld"
    assert sampler_name(Mine()).endswith("Mine")
