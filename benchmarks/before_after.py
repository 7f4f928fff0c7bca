"""Compare the speed of two versions of the package in one run on one device.

    python benchmarks/before_after.py --before OLD/src --after src --data cifar10:DIR --out FILE

Each edition is a folder to import `pseudocoreset` from. Measured are an expert's epoch, an update
of FBPC at 10 images a class, an epoch of SGHMC and the predictions of ten samples, as medians over
the steps of a process; the ratio is of the medians over the rounds, before / after.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROUNDS = 3


class Watch:
    """Notes the time of each step of long work."""

    def __init__(self):
        self.stamps = []

    def task(self, *_, **__):
        """Begin a piece of work."""
        return self

    def __enter__(self):
        self.advance()
        return self

    def __exit__(self, *_):
        pass

    def advance(self, **_):
        """A step is done."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.stamps.append(time.perf_counter())

    def median(self, skip):
        """The median time of a step, without the first ones."""
        durations = [b - a for a, b in zip(self.stamps, self.stamps[1:], strict=False)]
        return median(durations[skip:])


def measure(data_spec, small):
    """Seconds by name, with whichever edition is imported."""
    import pseudocoreset as pc

    first = hasattr(pc, "DistillSettings")
    data = pc.load_data(data_spec)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        options = {"num": 1, "epochs": 6 if small else 16}
        watch = Watch()
        if first:
            options = pc.ExpertSettings(**options)
            experts = pc.train_experts(data, "convnet", folder, options, progress=watch)
        else:
            experts = pc.train_experts(data, "convnet", folder, **options, progress=watch)
        found["expert epoch"] = watch.median(3)
        watch, steps, method = Watch(), 12 if small else 80, {"from_epoch": 2, "to_epoch": 5}
        if first:
            settings = pc.DistillSettings("fbpc", steps=steps, recipe="tuned", **method)
            coreset = pc.distill(data, experts, settings, progress=watch)
        else:
            method = pc.FBPC(**method)
            coreset = pc.distill(data, experts, method, steps=steps, recipe="tuned", progress=watch)
        found["fbpc update"] = watch.median(steps // 4)
    epochs = 20 if small else 300
    for _ in range(2):  # the second time, all is compiled
        begun = time.perf_counter()
        if first:
            protocol = pc.Protocol(epochs=epochs, every=epochs // 10)
            posterior = pc.sample_posterior(coreset, protocol=protocol)
        else:
            sampler = pc.SGHMC(epochs=epochs, every=epochs // 10)
            posterior = pc.sample(coreset, sampler, chains=1, progress=False)
        found["sghmc epoch"] = (time.perf_counter() - begun) / epochs
    found["prediction of a sample"] = _prediction_s(posterior, data, first)
    return found


def _prediction_s(posterior, data, first):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = (data.test.images if hasattr(data.test, "images") else data.test.inputs).to(device)
    if first:
        from pseudocoreset.evaluation.predictive import log_samples_of, predictor_of

        predictor = predictor_of(posterior, inputs)

        def predict():
            return log_samples_of(posterior, predictor)
    else:
        from pseudocoreset.predictor import Predictor

        predictor = Predictor(posterior.make_net(), inputs, posterior.scaling)

        def predict():
            return posterior.outputs(inputs, scaling=posterior.scaling, predictor=predictor)

    times = []
    for _ in range(6):
        begun = time.perf_counter()
        float(predict().sum())
        times.append((time.perf_counter() - begun) / len(posterior))
    return median(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--after", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--small", action="store_true", help="a few steps: does it run")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(options.data, options.small)))
        return
    rows = {"before": [], "after": []}
    for _ in range(options.rounds):
        for name, folder in (("before", options.before), ("after", options.after)):
            path = os.pathsep.join([str(folder.resolve()), os.environ.get("PYTHONPATH", "")])
            words = [sys.executable, __file__, "--worker", "--data", options.data]
            words += ["--small"] if options.small else []
            environment = {**os.environ, "PYTHONPATH": path}
            done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE)
            rows[name].append(json.loads(done.stdout.splitlines()[-1]))
            print(name, rows[name][-1], flush=True)
    medians = {n: {k: median(r[k] for r in rs) for k in rs[0]} for n, rs in rows.items()}
    ratios = {k: medians["before"][k] / medians["after"][k] for k in medians["after"]}
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    words = "--before OLD/src --after src --data cifar10:DIR --out FILE"
    found = {
        "command": f"python benchmarks/before_after.py {words} --rounds {options.rounds}",
        "device": device,
        "torch": torch.__version__,
        "seconds": medians,
        "ratios, before / after": ratios,
        "rows": rows,
    }
    print(json.dumps(ratios, indent=1))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
