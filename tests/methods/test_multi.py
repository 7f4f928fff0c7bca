"""Several architectures: the sum of the gradients of any method, each with its own state."""

import pytest
import torch

from pseudocoreset.methods import METHODS, prepare
from small_world import make_context, make_method, make_points, make_rng, same

CHANGES = {"fbpc": {"gamma": 0.75}, "fbpc-isotropic": {"gamma": 0.75}, "bpc-w": {"lr_lr": 0.001}}
"""γ that is soon reached; large enough that BPC-W's learning rates go apart in an update."""
UPDATING = [name for name, kind in METHODS.items() if kind.makes_updates]


@pytest.mark.parametrize("name", UPDATING)
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
def test_gradients_are_summed_and_states_are_kept_apart(name, soft, store, other_store, data):
    """Algorithm 1: g ← g + g^(a), with the random numbers drawn one after the other."""
    coreset, rng, summed_rng = make_points(data, soft=soft), make_rng(), make_rng()
    contexts = [make_context(s, data) for s in (store, other_store)]
    method = make_method(name, **CHANGES.get(name, {}))
    parts = [method.prepare(context) for context in contexts]
    multi = prepare(method, contexts)
    states, state = [part.start() for part in parts], multi.start()
    for _ in range(2):
        alone = [part.gradient(coreset, own, rng) for part, own in zip(parts, states, strict=True)]
        summed = multi.gradient(coreset, state, summed_rng)
        states, state = [estimate.state for estimate in alone], summed.state
        assert summed.gradients.keys() == alone[0].gradients.keys()
        for leaf, gradient in summed.gradients.items():
            one, other = (estimate.gradients[leaf] for estimate in alone)
            assert torch.equal(gradient, one + other)
            assert one.abs().max() > 0
            assert other.abs().max() > 0
        for number, estimate in enumerate(alone):
            own = {f"{number}/{key}": value for key, value in estimate.state.items()}
            assert same(own, {k: v for k, v in state.items() if k.startswith(f"{number}/")})
            assert estimate.info.items() == {
                (key.removesuffix(f"/{number}"), value)
                for key, value in summed.info.items()
                if key.endswith(f"/{number}")
            }


def test_each_network_learns_its_own_learning_rate(store, other_store, data):
    contexts = [make_context(s, data) for s in (store, other_store)]
    multi = prepare(make_method("bpc-w", **CHANGES["bpc-w"]), contexts)
    coreset = make_points(data)
    first = multi.gradient(coreset, multi.start(), make_rng(1))
    one, other = (float(first.state[f"{number}/lr_change"]) for number in (0, 1))
    assert first.state.keys() == {"0/lr_change", "1/lr_change"}
    assert len({0.0, one, other}) == 3
    second = multi.gradient(coreset, first.state, make_rng(2))
    assert second.info["lr_student/0"] == pytest.approx(0.1 + one)
    assert second.info["lr_student/1"] == pytest.approx(0.1 + other)
