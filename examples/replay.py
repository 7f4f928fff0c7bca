"""A replay buffer for class-incremental learning: random images, herding, or a pseudocoreset.

Classes arrive in steps. After a step its data are gone, except for a memory of a few images per
class. In the end a new network is trained on the memory alone and scored on the test images of all
classes (as GDumb does; Prabhu, Torr and Dokania, 2020).

    python examples/replay.py                          # digits, about a minute on a CPU
    python examples/replay.py --data cifar100:DIR --net convnet --steps 5 10 --ipc 20 \
        --experts 3 --expert-epochs 20 --expert-lr 0.05 --expert-batch 128 --updates 60 --learn 1500
"""

import argparse
import json
from dataclasses import replace
from math import ceil
from pathlib import Path
from statistics import fmean, stdev

import torch
from torch import Tensor

import pseudocoreset as pc

MEMORIES = ("random", "herding", "pseudocoreset")
BATCH = 256  # points a step of the network that learns from the memory
SAMPLES = 5  # of its weights, whose predictions are averaged

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--data", default="digits", help="a data spec, such as cifar100:DIR")
parser.add_argument("--net", default="convnet:width=32")
parser.add_argument("--steps", type=int, nargs="+", default=[2, 5], help="in how many steps")
parser.add_argument("--orders", type=int, default=3, help="random orders of the classes")
parser.add_argument("--ipc", type=int, default=2, help="images of a class in the memory")
parser.add_argument("--experts", type=int, default=4, help="experts for a step's classes")
parser.add_argument("--expert-epochs", type=int, default=12)
parser.add_argument("--expert-lr", type=float, default=0.1)
parser.add_argument("--expert-batch", type=int, default=64)
parser.add_argument("--updates", type=int, default=200, help="updates of a step's coreset")
parser.add_argument("--learn", type=int, default=400, help="steps of the network that learns")
parser.add_argument("--curve", action="store_true", help="score after each step, not the last only")
parser.add_argument("--device", default="auto")
parser.add_argument("--work", type=Path, default=Path("replay"), help="run again to resume in it")
parser.add_argument("--out", type=Path, help="a JSON file to write")


def only(split, classes: Tensor):
    """The points of some classes, whose targets are then their places in `classes`."""
    kept = torch.isin(split.targets, classes).nonzero().squeeze(1)
    part = split.take(kept)
    place = torch.full((int(classes.max()) + 1,), -1)
    place[classes] = torch.arange(len(classes))
    return replace(part, targets=place[part.targets])


def of_classes(data: pc.Data, classes: Tensor) -> pc.Data:
    """A step's data set."""
    names = tuple(data.class_names[label] for label in classes)
    train, test = only(data.train, classes), only(data.test, classes)
    return replace(data, train=train, test=test, class_names=names)


def herded(data: pc.Data, experts: pc.ExpertStore, ipc: int, start: pc.Pseudocoreset):
    """Real images whose mean feature is nearest to their class's, chosen one after another."""
    net, device = experts.make_net(), torch.device("cuda" if torch.cuda.is_available() else "cpu")
    weights = experts.snapshot(experts.trajectories[0], experts.last_epoch, device)
    chosen = []
    for label in range(data.classes):
        members = (data.train.targets == label).nonzero().squeeze(1)
        inputs = data.scaling.apply(data.train.inputs[members])
        with torch.no_grad():
            parts = [net.features(weights, part.to(device)).cpu() for part in inputs.split(500)]
        features = torch.nn.functional.normalize(torch.cat(parts), dim=1)
        mean, total = features.mean(0), torch.zeros(features.shape[1])
        free = torch.ones(len(members), dtype=torch.bool)
        for count in range(1, ipc + 1):
            far = (mean - (total + features) / count).norm(dim=1)
            best = int(far.masked_fill(~free, torch.inf).argmin())
            free[best], total = False, total + features[best]
            chosen.append(members[best])
    index = torch.stack(chosen)
    return replace(
        start,
        inputs=data.scaling.apply(data.train.inputs[index]),
        targets=data.train.targets[index],
    )


def step_memories(step: pc.Data, options, folder: Path, seed: int) -> dict[str, pc.Pseudocoreset]:
    """What each kind of memory keeps of a step's data."""
    epochs, shared = options.expert_epochs, {"seed": seed, "device": options.device}
    experts = pc.train_experts(
        step,
        options.net,
        out=folder / "experts",
        num=options.experts,
        epochs=epochs,
        lr=options.expert_lr,
        batch=options.expert_batch,
        **shared,
    )
    random = pc.distill(step, method="random", ipc=options.ipc, net=options.net, **shared)
    method = pc.FBPCIsotropic(from_epoch=2 * epochs // 3, to_epoch=epochs)
    made = pc.distill(
        step, experts, method, ipc=options.ipc, steps=options.updates, out=folder / "run", **shared
    )
    herd = herded(step, experts, options.ipc, random)
    return dict(zip(MEMORIES, (random, herd, made), strict=True))


def joined(memory: pc.Pseudocoreset | None, new: pc.Pseudocoreset, classes: Tensor, data: pc.Data):
    """The memory with a step's images, whose labels become those of the whole data."""
    if new.targets.is_floating_point():
        targets = torch.zeros(len(new.targets), data.classes)
        targets[:, classes] = new.targets.cpu()
    else:
        targets = classes[new.targets.cpu()]
    inputs = new.inputs.cpu()
    if memory is not None:
        inputs, targets = torch.cat([memory.inputs, inputs]), torch.cat([memory.targets, targets])
    return replace(
        new,
        inputs=inputs,
        targets=targets,
        class_names=data.class_names,
        likelihood=pc.Categorical(data.classes),
    )


def accuracy(memory: pc.Pseudocoreset, data: pc.Data, seen: Tensor, options, seed: int) -> float:
    """Of networks that learned from the memory alone, on the test images of all classes so far."""
    every = ceil(options.learn / ceil(memory.num_seen / BATCH) / SAMPLES)
    sampler = pc.SGHMC(epochs=SAMPLES * every, every=every, batch=BATCH)
    posterior = pc.sample(memory, sampler, chains=1, seed=seed, device=options.device)
    test = only(data.test, seen)
    probs = posterior.predict(test.inputs, device=options.device).probs[:, seen]
    return float((probs.argmax(1) == test.targets).float().mean())


def main(words: list[str] | None = None) -> dict[str, dict[str, list[list[float]]]]:
    """Print a table: final accuracy by number of steps and kind of memory."""
    options = parser.parse_args(words)
    data, found = pc.load_data(options.data), {}
    for steps in options.steps:
        scores: dict[str, list[list[float]]] = {name: [] for name in MEMORIES}
        for order in range(options.orders):
            shuffled = torch.randperm(data.classes, generator=torch.Generator().manual_seed(order))
            memories = dict.fromkeys(MEMORIES)
            for curve in scores.values():
                curve.append([])
            groups = shuffled.tensor_split(steps)
            for number, classes in enumerate(groups):
                folder = options.work / f"{steps}-steps" / f"order{order}" / f"step{number}"
                new = step_memories(of_classes(data, classes), options, folder, order)
                for name, kept in new.items():
                    memories[name] = joined(memories[name], kept, classes, data)
                if options.curve or number == len(groups) - 1:
                    seen = torch.cat(groups[: number + 1])
                    for name, memory in memories.items():
                        scores[name][-1].append(accuracy(memory, data, seen, options, order))
        found[str(steps)] = scores
        for name, curves in scores.items():
            last = [100 * curve[-1] for curve in curves]
            spread = f" ± {stdev(last):.1f}" if len(last) > 1 else ""
            print(f"{steps} steps, {options.ipc} a class, {name}: {fmean(last):.1f}{spread} %")
    if options.out is not None:
        content = {
            "options": {k: v for k, v in vars(options).items() if k not in ("work", "out")}
            | {"data": data.name},
            "versions": {"pseudocoreset": pc.__version__, "torch": torch.__version__},
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "accuracy": found,
        }
        options.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return found


if __name__ == "__main__":
    main()
