"""Choose the prior of the evaluation protocol on held-out training images.

    python benchmarks/choose_prior.py --data cifar10:DIR --holdout 5000 RUN... \
        --out results/prior.json

Each RUN is a folder of `pseudocoreset distill --holdout 5000`. For every precision τ of the prior
N(0, 1/τ), each coreset's posterior is sampled by the paper's protocol and scored on the held-out
images, never on the test set. The file holds all scores; `chosen` is the τ with the best mean NLL
over the coresets.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import load_data
from pseudocoreset.engine.files import write_json
from pseudocoreset.evaluation.evaluate import evaluate
from pseudocoreset.posterior import PROTOCOLS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--holdout", type=int, required=True)
    parser.add_argument("--taus", nargs="+", type=float, default=[0, 0.1, 0.2, 0.5, 1, 2, 5])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    data = load_data(options.data).hold_out(options.holdout)
    rows = []
    for run in options.runs:
        coreset = Pseudocoreset.load(run / "coreset.safetensors")
        for tau in options.taus:
            protocol = replace(PROTOCOLS["paper"], prior=tau)
            found = evaluate(coreset, data, protocol=protocol, seeds=options.seeds, split="holdout")
            content = found.as_json()
            names = ("accuracy", "accuracy_std", "nll", "nll_std", "nll_kim", "ece", "brier")
            row = {"method": coreset.provenance.method, "ipc": coreset.ipc, "tau": tau}
            row |= {name: content[name] for name in names}
            row |= {"steps": coreset.provenance.config["steps"], "decay": tau / len(coreset)}
            rows.append(row)
            print(
                f"{row['method']:16} ipc {row['ipc']:3} τ {tau:4}: {row['accuracy']:.4f} "
                f"NLL {row['nll']:.4f} (Kim {row['nll_kim']:.4f})",
                flush=True,
            )
            mean = {
                t: fmean(r["nll"] for r in rows if r["tau"] == t)
                for t in options.taus
                if any(r["tau"] == t for r in rows)
            }
            protocol_used = content["protocol"] | {"seeds": options.seeds, "prior": options.taus}
            write_json(
                options.out,
                {
                    "command": __doc__.split("\n\n")[1].strip(),
                    "chosen": min(mean, key=mean.__getitem__),
                    "mean_nll": {str(t): value for t, value in mean.items()},
                    "protocol": protocol_used,
                    "rows": rows,
                },
            )


if __name__ == "__main__":
    main()
