"""Samples of the weights, a group at a time: a matter of memory alone."""

import pytest
import torch

from pseudocoreset.engine.loop import Loop
from pseudocoreset.methods import METHODS
from pseudocoreset.methods.weight_space import Sampled
from small_world import make_context, make_method, make_points, make_rng

STUDENT = {"start_epochs": 3, "student_steps": 4, "lr_student": 0.1, "noise": 0.05}


SAMPLED = [name for name, kind in METHODS.items() if issubclass(kind, Sampled)]


@pytest.mark.parametrize("name", SAMPLED)
def test_any_group_gives_the_same_gradient_in_as_many_steps_as_it_takes(
    name, store, data, monkeypatch
):
    steps = []
    run = Loop.run
    monkeypatch.setattr(Loop, "run", lambda loop, times: steps.append(times) or run(loop, times))
    found = []
    for group in (1, 2, 4, 9):
        method = make_method(name, samples=6, group=group, **STUDENT).prepare(
            make_context(store, data)
        )
        update = method.gradient(make_points(data), {}, make_rng())
        found.append(update.gradients["inputs"])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-4, atol=1e-6)
    assert steps == [4, 6, 4, 3, 4, 2, 4, 1]  # the student's, and the groups'
