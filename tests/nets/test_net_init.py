import pytest
import torch

from pseudocoreset.nets import Net, make_net

SPECS = ("convnet", "convnet:norm=layer", "lenet", "convnet:norm=batch,stats=kept", "mlp")


def make(spec: str) -> Net:
    return make_net(spec, input_shape=(3, 32, 32), outputs=10)


@pytest.mark.parametrize("spec", SPECS)
def test_fast_init_has_the_distribution_of_a_freshly_built_module(spec):
    net = make(spec)
    weights = net.init(torch.Generator().manual_seed(0))
    ours = net.unflatten(weights.params)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = net.build()
    for name, theirs in module.named_parameters():
        theirs, mine = theirs.detach().flatten(), ours[name].flatten()
        if theirs.std(correction=0) == 0:  # a norm's weight or bias
            assert torch.equal(mine, theirs), name
            continue
        # Two samples of one uniform distribution: the same quantiles up to the noise of their
        # number, by Kolmogorov and Smirnov's distance (exceeded by chance once in 10⁵).
        both = torch.cat([mine, theirs]).sort().values
        distance = (
            torch.searchsorted(mine.sort().values, both, right=True)
            - torch.searchsorted(theirs.sort().values, both, right=True)
        ).abs().max() / len(mine)
        assert distance <= 2.47 * (2 / len(mine)) ** 0.5, name
    buffers = [buffer.reshape(-1).float() for buffer in module.buffers()]
    assert torch.equal(weights.buffers, torch.cat(buffers) if buffers else torch.empty(0))


def test_bounds_are_one_over_the_root_of_the_fan_in():
    net = make("convnet")
    tensors = net.unflatten(net.init(torch.Generator().manual_seed(0)).params)
    fans = {"features.0": 27, "features.4": 9 * 128, "features.8": 9 * 128, "classifier": 2048}
    for layer, fan_in in fans.items():
        weight = tensors[f"{layer}.weight"]
        assert weight.abs().max() <= fan_in**-0.5
        assert weight.abs().max() >= 0.99 * fan_in**-0.5
        assert weight.std().item() == pytest.approx((3 * fan_in) ** -0.5, rel=0.02)
        assert tensors[f"{layer}.bias"].abs().max() <= fan_in**-0.5


def test_init_follows_the_generator_alone():
    net = make("convnet:width=8")
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(3)
    first, second = net.init(generator), net.init(generator)
    again = net.init(torch.Generator().manual_seed(3))
    assert torch.equal(first.params, again.params)
    assert not torch.equal(first.params, second.params)
    assert first.params.dtype == first.buffers.dtype == torch.float32
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_of_two_inits_share_no_memory():
    net = make("convnet:width=8,norm=batch,stats=kept")
    first = net.init(torch.Generator().manual_seed(0))
    first.buffers.fill_(7)
    assert not (net.init(torch.Generator().manual_seed(0)).buffers == 7).any()
