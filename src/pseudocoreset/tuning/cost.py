"""Estimate the cost of a search."""

from collections.abc import Sequence
from dataclasses import replace

from pseudocoreset.data import Data
from pseudocoreset.distillation import DistillOptions, distill
from pseudocoreset.engine.device import DeviceLike
from pseudocoreset.experts import ExpertOptions, ExpertStore
from pseudocoreset.methods import Method, method_name
from pseudocoreset.nets import NetLike, default_net
from pseudocoreset.plan.estimate import plan_distill, plan_evaluate, plan_experts
from pseudocoreset.plan.record import Plan
from pseudocoreset.tuning.attempt import SHORTER, Scoring
from pseudocoreset.tuning.first_trial import TuneOptions, first_job, trains_experts


def plan_tune(
    data: Data,
    stores: Sequence[ExpertStore],
    method: Method,
    options: DistillOptions,
    how: TuneOptions,
    *,
    recipe: str,
    nets: Sequence[NetLike],
    device: DeviceLike,
) -> Plan:
    """A search, from a few steps of its experts and of its first trial.

    Args:
        data: the data set, with held-out points
        stores: the experts, if there are any yet
        method: the method
        options: the options of the loop
        how: how long the search is
        recipe: what it begins with
        nets: the network, if no experts are given
        device: where it will run
    """
    trains = trains_experts(stores, method, how, nets)
    net = next(iter(nets), None) or default_net(data.input_shape)
    job = first_job(data, stores, method, options, recipe)
    made = plan_distill(data, stores, job, nets=nets, device=device)
    points = distill(
        data,
        method="random",
        ipc=options.ipc,
        form=job.form,
        net=net,
        device="cpu",
        progress=False,
        target_noise=job.options.target_noise,
    )
    scoring = Scoring(how.chain_epochs, how.seeds, 0, device)
    scored = plan_evaluate(
        points, data, None, scoring.sampler(), seeds=how.seeds, split="holdout", device=device
    )
    trial_s = made.steps * made.step_s + (1 + 1 / SHORTER) * scored.seconds
    notes = ["the time of a trial depends on its form and γ, and some trials are stopped early"]
    whole = Plan(
        f"tune with {method_name(job.method)} at {options.ipc} points per class",
        made.parameters,
        disk_bytes=0,
        peak_bytes=max(made.peak_bytes, scored.peak_bytes),
        once_s=made.once_s,
        step="trials",
        steps=how.trials,
        step_s=trial_s,
        measured_steps=made.measured_steps,
        device=made.device,
        notes=notes,
    )
    if not trains:
        return whole
    trained = plan_experts(data, net, ExpertOptions(num=how.num, epochs=how.epochs), device=device)
    return replace(
        whole,
        disk_bytes=trained.disk_bytes,
        peak_bytes=max(whole.peak_bytes, trained.peak_bytes),
        once_s=whole.once_s + trained.seconds,
        notes=[*notes, f"the time includes {how.num} experts of {how.epochs} epochs"],
    )
