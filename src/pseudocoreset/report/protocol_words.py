"""How posteriors were sampled, in words."""

from collections.abc import Sequence
from typing import Any

from pseudocoreset.engine.text import printable, significant
from pseudocoreset.report.run_report import (
    RunReport,
    count,
    finite,
    kinetic_temperature,
    mapping,
)

SAMPLER_NAMES = {
    "sghmc": "SGHMC",
    "sgld": "SGLD",
    "map": "a deep ensemble (MAP)",
    "last-layer": "last layers in closed form on a deep ensemble",
}
WARM = 3.0
"""A chain this many times warmer (or colder) than its temperature setting is reported."""
IN_WORDS = {
    "step": "step {}",
    "friction": "friction {}",
    "prior": "prior precision {}",
    "weight": "each point counts {} times",
    "chains": "chains per seed: {}",
    "epochs": "epochs per chain: {}",
    "every": "a sample every {} epochs",
    "first": "and one after the first",
}
ELSEWHERE = (
    *("sampler", "dsa", "batch", "temperature", "weight_decay", "net", "split", "images"),
    *("test_batch", "device", "versions"),
)
"""What the page says elsewhere, or not at all; a user's own sampler may have more."""


def sampling_facts(run: RunReport) -> list[tuple[str, str, str]]:
    """The diagnostics of a sampler: what is measured, its value, and what it means."""
    target, kinetic = finite(run.protocol.get("temperature")), kinetic_temperature(run)
    disagreement = run.score("disagreement")
    facts = []
    if target is not None:
        meaning = "1 is the exact posterior; lower values give a narrower one"
        facts.append(("Temperature", significant(target), meaning))
    if kinetic is not None:
        meaning = "measured from the momenta; near the temperature if nothing else adds noise"
        facts.append(("Kinetic temperature", significant(kinetic), meaning))
    if disagreement is not None:
        meaning = "share of test points for which two samples predict different classes"
        facts.append(("Disagreement", f"{disagreement:.1%}", meaning))
    return [*facts, *_convergence_facts(run)]


def _convergence_facts(run: RunReport) -> list[tuple[str, str, str]]:
    """Whether chains agree."""
    hats, sizes = (mapping(run.convergence.get(key)) for key in ("r_hat", "effective_size"))
    middle, largest, share = (
        finite(hats.get(key)) for key in ("median", "largest", "share_above_1.1")
    )
    by_chance = finite(hats.get("share_by_chance"))
    chains, draws = (count(run.convergence.get(key)) for key in ("chains", "draws"))
    facts = []
    if middle is not None and largest is not None and share is not None:
        meaning = (
            f"median over predictions; largest {largest:.2f}; above 1.1 for {share:.0%} of them"
        )
        if by_chance is not None:
            meaning += f", {by_chance:.0%} by chance"
        facts.append(("R̂", f"{middle:.2f}", meaning))
    size = finite(sizes.get("median"))
    if size is not None and chains and draws:
        meaning = f"independent samples (median), from {chains * draws} samples of the chains"
        facts.append(("Effective samples", f"{size:.0f}", meaning))
    loss = mapping(run.convergence.get("loss"))
    hat, size = finite(loss.get("r_hat")), finite(loss.get("effective_size"))
    if hat is not None and size is not None:
        meaning = f"training loss after the first sample; worth {size:.0f} independent values"
        facts.append(("R̂ of the loss", f"{hat:.2f}", meaning))
    return facts


def convergence_note(run: RunReport) -> str:
    """A warning where chains disagree; empty where they agree."""
    said = run.convergence.get("warning")
    return printable(said, 1000) if isinstance(said, str) else ""


def temperature_note(run: RunReport) -> str:
    """Why a chain is much warmer or colder than set; empty where it is not."""
    kinetic, target = kinetic_temperature(run), finite(run.protocol.get("temperature"))
    if kinetic is None or target is None or target <= 0:
        return ""
    if kinetic > WARM * target:
        times = significant(float(f"{kinetic / target:.2g}"))
        return (
            f"The chains ran about {times} times warmer than set. Random augmentation and "
            "mini-batches add noise to the gradients, and a chain whose loss still falls is warmer "
            "too. The samples spread more than they would at the set temperature."
        )
    if kinetic * WARM < target:
        return (
            "The chains ran colder than set, so they have not reached equilibrium. Give more "
            "--epochs or a larger --step before you trust the spread of the samples."
        )
    return ""


def wordings(runs: Sequence[RunReport]) -> list[str]:
    """One sentence for each protocol in use; if there are several, with the runs it is of."""
    users: dict[str, list[str]] = {}
    for run in runs:
        if run.protocol:
            sentence = protocol_sentence(run.protocol, "images" if run.is_image else "points")
            users.setdefault(sentence, []).append(run.name)
    if len(users) < 2:
        return list(users)
    return [f"{'; '.join(names)}: {sentence}" for sentence, names in users.items()]


def seed_words(runs: Sequence[RunReport]) -> str:
    """The seeds of the chains, and of the coresets."""
    chains = {count(signs.get("seed")) for run in runs for signs in run.samplers}
    known = sorted(seed for seed in chains if seed is not None)
    seeds = {count(run.config.get("seed")) for run in runs}
    made = sorted(seed for seed in seeds if seed is not None)
    parts = [f"coresets made with {_seeds(made)}"] if made else []
    parts += [f"posteriors sampled with {_seeds(known)}"] if known else []
    if not known and any(run.seeds for run in runs):
        parts.append(f"up to {max(run.seeds for run in runs)} seeds a posterior")
    return ", ".join(parts)


def _seeds(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def protocol_sentence(protocol: dict[str, Any], points: str = "images") -> str:
    """How a posterior was sampled and scored, in one sentence.

    Args:
        protocol: what an evaluation states
        points: what to call the points that were scored
    """
    sampler = printable(protocol.get("sampler", "unknown sampler"))
    parts = [SAMPLER_NAMES.get(sampler, sampler)]
    for key, words in IN_WORDS.items():
        unused = (key == "friction" and sampler == "sgld") or (
            key == "every" and sampler in ("map", "last-layer")
        )
        by_class = key == "weight" and "class_weights" in protocol
        unused = unused or (key == "weight" and protocol.get(key) == 1 and not by_class)
        unused = unused or (key == "first" and not protocol.get(key))
        if key in protocol and not unused:
            mean = " on average" if by_class else ""
            parts.append(words.format(printable(protocol[key])) + mean)
    for key, value in protocol.items():
        if key not in IN_WORDS and key not in ELSEWHERE and isinstance(value, str | int | float):
            parts.append(f"{printable(key)} {printable(value)}")
    if "dsa" in protocol and points == "images":
        on = protocol["dsa"] == "on"
        parts.append("with the augmentation of the distillation" if on else "without augmentation")
    number, scored = count(protocol.get("images")), ""
    if number:
        split = printable(protocol.get("split", "?"))
        scored = f"; scored on {number:,} {points} of the {split} split"
    return ", ".join(parts) + scored + "."
