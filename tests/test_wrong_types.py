"""A value of a wrong type is refused by the parameter's name, where no type checker runs."""

from inspect import unwrap
from pathlib import Path

import pytest

import pseudocoreset as pc
from pseudocoreset.posterior.sample import chains_for


@pytest.fixture(scope="module")
def coreset(data):
    return pc.distill(data, method="random", ipc=1, net="convnet:width=8", progress=False)


def refused(parameter, function, *arguments, **named):
    with pytest.raises(pc.UserError) as caught:
        unwrap(function)(*arguments, **named)
    assert caught.value.parameter == parameter
    assert f"`{parameter}`" in str(caught.value)


def test_load_data_refuses_what_is_no_text():
    refused("spec", pc.load_data, Path("x.csv"))


def test_train_experts_refuses_what_is_no_data(tmp_path):
    refused("data", pc.train_experts, [[1.0]], out=tmp_path)


@pytest.mark.parametrize("experts", ["folder", None, ["folder"]])
def test_distill_refuses_what_are_no_experts(experts, data):
    refused("experts", pc.distill, data, experts, ipc=1)


def test_distill_refuses_what_is_no_data():
    refused("data", pc.distill, "digits", ipc=1)


@pytest.mark.parametrize("sampler", [pc.SGHMC, 3, "sgld"])
def test_sample_refuses_what_is_no_sampler(sampler, coreset):
    refused("sampler", chains_for, coreset, sampler, 1, None)


def test_sample_refuses_what_is_no_coreset(data):
    refused("coreset", chains_for, data, "tuned", 1, None)


def test_evaluate_refuses_what_is_no_posterior_and_no_data(data, coreset):
    refused("what", pc.evaluate, data, data)
    refused("data", pc.evaluate, coreset, "digits")
    refused("ood", pc.evaluate, coreset, data, ood="digits")


def test_load_refuses_what_is_no_name_and_no_size():
    refused("name", pc.load, Path("cifar10"), ipc=10)
    refused("ipc", pc.load, "cifar10", ipc="10")
