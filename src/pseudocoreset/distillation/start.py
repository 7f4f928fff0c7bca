"""The initial points and labels of a coreset."""

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from pseudocoreset.data import Data
from pseudocoreset.distillation.job import DistillOptions
from pseudocoreset.engine.random import Rng
from pseudocoreset.errors import UserError
from pseudocoreset.forms import Form
from pseudocoreset.likelihoods import Categorical, Likelihood

LEAST_SHARE = 1e-4
"""No class of a learned label that starts from probabilities has less."""


def start_points(
    data: Data, options: DistillOptions, form: Form, rng: Rng
) -> tuple[Float[Tensor, "m ..."], Shaped[Tensor, "n ..."]]:
    """Stored inputs and the targets of the points that are seen, before the first update.

    Real points drawn at random, `ipc` a class and class by class, or noise in their place; with
    noise there may be more a class than there are real ones.
    """
    device = data.train.inputs.device
    each = options.ipc * form.seen
    noise = options.init == "noise"
    if noise and data.task == "classification":
        targets = torch.arange(data.classes, device=device).repeat_interleave(each)
    else:
        chosen = _chosen_points(data, each, rng).to(device)
        targets = data.train.targets[chosen]
    if data.target_scaling is not None:
        targets = data.target_scaling.apply(targets)
    if noise:
        shape = (len(targets) // form.seen, *data.input_shape)
        return torch.randn(shape, generator=rng.device, device=device), targets
    return form.encode(data.scaling.apply(data.train.inputs[chosen])), targets


def _chosen_points(data: Data, each: int, rng: Rng) -> Int64[Tensor, " n"]:
    """Positions of random training points, `each` a class; this many in all for regression."""
    if data.task == "regression":
        if len(data.train) < each:
            raise UserError(
                f"{data.name} has {len(data.train)} training points, fewer than `ipc` {each}.",
                "ipc",
            )
        return torch.randperm(len(data.train), generator=rng.host)[:each]
    classes = data.train.targets.cpu()
    chosen = []
    for label, name in enumerate(data.class_names):
        members = (classes == label).nonzero().squeeze(1)
        if len(members) < each:
            raise UserError(
                f"class {name!r} of {data.name} has {len(members)} training points, fewer than the "
                f"{each} that `ipc` asks for.",
                "ipc",
            )
        chosen.append(members[torch.randperm(len(members), generator=rng.host)[:each]])
    return torch.cat(chosen)


def learnable(targets: Shaped[Tensor, "m ..."], likelihood: Likelihood) -> Float[Tensor, "m k"]:
    """Where learned targets start: logits of soft labels, or the numbers themselves."""
    if not isinstance(likelihood, Categorical):
        return targets.clone()
    if targets.is_floating_point():
        return targets.clamp(min=LEAST_SHARE).log()
    return likelihood.softened(targets).log()  # whose softmax is the shares again
