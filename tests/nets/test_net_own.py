import own_factories  # here, as it draws from the global generator when it is first imported
import pytest
import torch

from pseudocoreset.errors import UserError
from pseudocoreset.experts.train import experts_at_once
from pseudocoreset.nets import Net, Weights, make_net
from pseudocoreset.posterior.sample import chains_at_once


def make(name: str) -> Net:
    return make_net(f"{own_factories.__name__}:{name}", channels=1, image_size=4, classes=3)


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
    ours = make_net("convnet:width=8", channels=1, image_size=8, classes=3)
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
    ("name", "words"),
    [
        ("doubles", "failed in training mode on images of 2×1×4×4 with RuntimeError"),
        ("two_images", "failed in training mode on images of 3×1×4×4 with RuntimeError"),
        ("detached", "gave logits through which no gradient flows to its weights"),
        ("absent", "module own_factories has no function called absent: name a network as"),
        ("raises", "called with (1, 4, 3), failed with RuntimeError: two lines; let it take"),
        ("refuses", "only for 32×32"),
        ("no_arguments", "failed with TypeError: no_arguments() takes 0 positional arguments"),
        ("not_a_module", "returned a str; let it return a torch.nn.Module"),
        ("same", "returns the same module at each call; let it build a new one"),
        ("lazy", "has lazy layers; give them their sizes"),
        ("no_parameters", "has no parameters; register them"),
        ("complex_weights", "has complex weights; use real ones"),
        ("fixed_size", "failed in training mode on images of 2×1×4×4 with RuntimeError"),
        ("wrong_classes", "gave torch.float32 of 2×4 for images of 2×1×4×4; let it give logits"),
        ("pair", "gave a tuple for images of 2×1×4×4; let it give logits, floats of 2×3"),
        ("labels", "gave torch.int64 of 2 for images of 2×1×4×4"),
        ("single_group", "an instance norm on 1×1 feature maps keeps nothing but its bias"),
        ("single_instance", "can't take 2×1×4×4 images: an instance norm on 1×1 feature maps"),
    ],
)
def test_own_networks_that_cannot_be_used_are_refused(name, words):
    with pytest.raises(UserError) as caught:
        make(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_module_that_cannot_be_imported_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"nowhere\.nets:make can't be imported \(ModuleNotFound"):
        make_net("nowhere.nets:make", channels=1, image_size=8, classes=3)
    (tmp_path / "broken_nets.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"ZeroDivisionError: division by zero\): check its name"):
        make_net("broken_nets:make", channels=1, image_size=8, classes=3)


def test_a_name_we_know_comes_first(tmp_path, monkeypatch):
    (tmp_path / "convnet.py").write_text("def depth(*args): raise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="'depth' where one option=value was expected"):
        make_net("convnet:depth", channels=1, image_size=8, classes=3)
