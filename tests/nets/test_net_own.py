import sys
from functools import partial
from hashlib import blake2b
from pathlib import Path

import own_factories  # here, as it draws from the global generator when it is first imported
import pytest
import torch
from torch import nn

from pseudocoreset.engine import plugins
from pseudocoreset.errors import UserError
from pseudocoreset.experts.train import experts_at_once
from pseudocoreset.nets import Net, Weights, make_net
from pseudocoreset.posterior.sample import chains_at_once


def make(name: str) -> Net:
    return make_net(f"{own_factories.__name__}:{name}", input_shape=(1, 4, 4), outputs=3)


@pytest.fixture
def images():
    return torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(9))


def test_own_network_keeps_its_own_init_and_its_tied_weights():
    net = make("custom")
    assert net.spec == "own_factories:custom"
    assert net.num_params == 2 + 16 * 16 + 16 + 16 + 3 * 16 + 3
    tensors = net.unflatten(net.init(torch.Generator().manual_seed(0)).params)
    assert tensors["first.weight"].std().item() == pytest.approx(0.01, rel=0.2)
    assert (tensors["head.bias"] == 3).all()
    assert "second.weight" not in tensors


def test_of_an_own_network_nobody_knows_whether_images_count_for_one_another():
    assert not make("custom").by_image


def test_own_init_follows_the_generator_alone():
    net = make("custom")
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(0)
    first, second = net.init(generator), net.init(generator)
    assert torch.equal(first.params, net.init(torch.Generator().manual_seed(0)).params)
    assert not torch.equal(first.params, second.params)
    assert torch.equal(torch.get_rng_state(), before)


def test_trying_an_own_network_leaves_the_global_random_state(images):
    before = torch.get_rng_state()
    net = make("dropout")
    assert torch.equal(torch.get_rng_state(), before)
    weights = net.init(torch.Generator().manual_seed(0))
    assert torch.equal(net.apply(weights, images), net.apply(weights, images))
    assert not torch.equal(net.train(weights, images)[0], net.train(weights, images)[0])


@pytest.mark.parametrize(("at_once", "most"), [(experts_at_once, 2), (chains_at_once, 8)])
def test_networks_that_draw_for_themselves_are_not_trained_side_by_side(at_once, most):
    before = torch.get_rng_state()
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert make("dropout").draws
    assert at_once(9, make("dropout"), cuda) == 1
    ours = make_net("convnet:width=8", input_shape=(1, 8, 8), outputs=3)
    for net in (ours, make("plain")):
        assert not net.draws
        assert at_once(9, net, cuda) == most
        assert at_once(1, net, cuda) == at_once(9, net, cpu) == 1
    assert torch.equal(torch.get_rng_state(), before)


def test_own_buffers_are_updated_whatever_their_type(images):
    net = make("custom")
    weights = net.init(torch.Generator().manual_seed(0))
    named = dict(net.build().named_buffers())
    assert net.num_buffers == sum(buffer.numel() for buffer in named.values()) == 5
    module = net.build()
    module.load_state_dict(net.unflatten(weights.params), strict=False)
    module.second.weight = module.first.weight
    buffers = weights.buffers
    for _ in range(2):
        logits, buffers = net.train(Weights(weights.params, buffers), images)
        torch.testing.assert_close(logits, module(images))
    expected = torch.cat([buffer.reshape(-1).float() for buffer in module.buffers()])
    torch.testing.assert_close(buffers, expected)
    module.eval()
    torch.testing.assert_close(net.apply(Weights(weights.params, buffers), images), module(images))


def test_group_norm_of_several_values_on_1x1_maps_is_taken():
    assert make("two_groups").num_params > 0


@pytest.mark.parametrize(
    "name",
    [
        "doubles",
        "two_images",
        "detached",
        "absent",
        "raises",
        "refuses",
        "no_arguments",
        "not_a_module",
        "same",
        "lazy",
        "no_parameters",
        "complex_weights",
        "fixed_size",
        "wrong_classes",
        "pair",
        "labels",
        "single_group",
        "single_instance",
    ],
)
def test_own_networks_that_cannot_be_used_are_refused(name):
    with pytest.raises(UserError) as caught:
        make(name)
    assert caught.value.parameter == "net"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "called"),
    [
        ((1, 4, 4), "(1, 4, 3) for (channels, image_size, classes)"),
        ((6,), "(6, 3) for (features, outputs)"),
    ],
)
def test_a_refused_factory_is_told_how_it_was_called(shape, called):
    with pytest.raises(UserError) as caught:
        make_net(own_factories.no_arguments, input_shape=shape, outputs=3)
    assert called in str(caught.value)


def test_a_name_we_know_comes_first(tmp_path, monkeypatch):
    (tmp_path / "convnet.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError):
        make_net("convnet:depth", input_shape=(1, 8, 8), outputs=3)
    assert "convnet" not in sys.modules


@pytest.mark.parametrize("factory", [own_factories.Custom, own_factories.custom])
def test_a_class_or_function_is_a_network_that_files_may_name(factory):
    shape = {"input_shape": (1, 4, 4), "outputs": 3}
    net = make_net(factory, **shape)
    assert net.spec == f"own_factories:{factory.__name__}"
    assert make_net(factory, **shape) is net
    assert make_net(net.spec, **shape, source="file") is net
    file = Path(own_factories.__file__)
    assert net.source_digest == blake2b(file.read_bytes(), digest_size=16).hexdigest()


def test_a_local_class_is_a_network_that_must_be_given_again(monkeypatch):
    class Local(nn.Linear):
        pass

    net = make_net(Local, input_shape=(5,), outputs=2)
    assert net.spec.endswith(
        ":test_a_local_class_is_a_network_that_must_be_given_again.<locals>.Local"
    )
    assert make_net(net.spec, input_shape=(5,), outputs=2, source="file") is net
    monkeypatch.setattr(plugins, "_allowed", {})
    with pytest.raises(UserError) as caught:
        make_net(net.spec, input_shape=(5,), outputs=2, source="file", trust_code=True)
    assert caught.value.parameter == "net"


@pytest.mark.parametrize("factory", [nn.Linear, partial(nn.Linear, bias=False)])
def test_a_table_network_is_called_with_features_and_outputs(factory):
    net = make_net(factory, input_shape=(5,), outputs=2)
    assert net.num_params in (10, 12)
    weights = net.init(torch.Generator().manual_seed(0))
    inputs = torch.randn(3, 5)
    tensors = net.unflatten(weights.params)
    expected = inputs @ tensors["weight"].T + tensors.get("bias", torch.zeros(2))
    torch.testing.assert_close(net.apply(weights, inputs), expected)


def test_code_typed_in_has_no_source_digest():
    names: dict[str, object] = {}
    exec(
        "def build(features, outputs): return Linear(features, outputs)",
        {"Linear": nn.Linear},
        names,
    )
    assert make_net(names["build"], input_shape=(5,), outputs=2).source_digest is None


def test_a_file_that_names_an_own_network_runs_nothing(tmp_path, monkeypatch):
    (tmp_path / "evil_net.py").write_text("from pathlib import Path\nPath('marker').touch()\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    with pytest.raises(
        UserError, match=r"coreset\.safetensors names the network evil_net:make"
    ) as caught:
        make_net("evil_net:make", input_shape=(5,), outputs=2, source=Path("coreset.safetensors"))
    assert caught.value.parameter == "net"
    assert not (tmp_path / "marker").exists()
    assert sys.path == before
