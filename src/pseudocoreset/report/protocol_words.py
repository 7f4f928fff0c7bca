"""How posteriors were sampled, in words."""

from collections.abc import Sequence
from typing import Any

from pseudocoreset.report.run_report import (
    RunReport,
    finite,
    kinetic_temperature,
    significant,
)
from pseudocoreset.report.scores import seed_count

SAMPLER_NAMES = {"sghmc": "SGHMC", "sgld": "SGLD", "map": "a deep ensemble (MAP)"}
WARM = 3.0
"""A chain this many times warmer (or colder) than it was told deserves a word."""


def sampling_facts(run: RunReport) -> list[tuple[str, str, str]]:
    """The signs of a sampler: what is measured, its value, and what it means."""
    told, kinetic = finite(run.protocol.get("temperature")), kinetic_temperature(run)
    disagreement = run.score("disagreement")
    facts = []
    if told is not None:
        meaning = "1 is the posterior itself, less is a colder, narrower one"
        facts.append(("Temperature told", significant(told), meaning))
    if kinetic is not None:
        meaning = "how fast the weights really moved; near the told one if only its noise did it"
        facts.append(("Kinetic temperature", significant(kinetic), meaning))
    if disagreement is not None:
        meaning = "two samples predict different classes for so many test images"
        facts.append(("Disagreement", f"{disagreement:.1%}", meaning))
    return facts


def temperature_note(run: RunReport) -> str:
    """Why a chain is far warmer or colder than it was told to be; empty where it is not."""
    kinetic, told = kinetic_temperature(run), finite(run.protocol.get("temperature"))
    if kinetic is None or told is None or told <= 0:
        return ""
    if kinetic > WARM * told:
        times = significant(float(f"{kinetic / told:.2g}"))
        return (
            f"The chains ran about {times} times warmer than told: random augmentation and "
            "batches make gradients noisy, and so does a chain that is still descending; the "
            "samples spread more than the told temperature alone would have them."
        )
    if kinetic * WARM < told:
        return (
            "The chains ran colder than told, so they had not come to equilibrium: give more "
            "--epochs or a larger --step before trusting the spread of the samples."
        )
    return ""


def wordings(runs: Sequence[RunReport]) -> list[str]:
    """One sentence for each protocol in use; where there are several, with the runs it is of."""
    users: dict[str, list[str]] = {}
    for run in runs:
        if run.protocol:
            users.setdefault(protocol_sentence(run.protocol), []).append(run.name)
    if len(users) < 2:
        return list(users)
    return [f"{'; '.join(names)}: {sentence}" for sentence, names in users.items()]


def seed_words(runs: Sequence[RunReport]) -> str:
    """The seeds of the chains, and of the coresets."""
    chains = {signs.get("seed") for run in runs for signs in run.samplers}
    known = sorted(seed for seed in chains if isinstance(seed, int))
    made = sorted({int(run.config["seed"]) for run in runs if "seed" in run.config})
    parts = [f"coresets made with {_seeds(made)}"] if made else []
    parts += [f"posteriors sampled with {_seeds(known)}"] if known else []
    if not known and any(seed_count(run) for run in runs):
        parts.append(f"up to {max(map(seed_count, runs))} seeds a posterior")
    return ", ".join(parts)


def commands() -> list[tuple[str, str]]:
    """What a person may type next, and what for."""
    return [
        ("pseudocoreset report RUN", "write the page of a run again"),
        (
            "pseudocoreset evaluate RUN/coreset.safetensors --data SPEC",
            "score a coreset, with other networks or samplers if you like",
        ),
    ]


def _seeds(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def protocol_sentence(protocol: dict[str, Any]) -> str:
    """How a posterior was sampled and scored, in one sentence."""
    sampler = str(protocol.get("sampler", "unknown sampler"))
    parts = [SAMPLER_NAMES.get(sampler, sampler)]
    for key, words in (
        ("step", "step {}"),
        ("friction", "friction {}"),
        ("prior", "prior precision {}"),
        ("chains", "chains a seed: {}"),
        ("epochs", "epochs a chain: {}"),
        ("every", "a sample every {}"),
    ):
        unused = (key == "friction" and sampler == "sgld") or (key == "every" and sampler == "map")
        if key in protocol and not unused:
            parts.append(words.format(protocol[key]))
    if "dsa" in protocol:
        on = protocol["dsa"] == "on"
        parts.append("augmented as the set was made" if on else "not augmented")
    scored = ""
    if protocol.get("images"):
        scored = f"; scored on {protocol['images']:,} images of the {protocol.get('split')} split"
    return ", ".join(parts) + scored + "."
