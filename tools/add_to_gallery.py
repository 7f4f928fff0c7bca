"""Put a coreset into the gallery: round it, score it, and write the coreset and its scores.

    python tools/add_to_gallery.py RUN_OR_CORESET --data mnist:DIR
    python tools/add_to_gallery.py CORESET --scores results/table1/cifar10/fbpc-ipc10-tuned.json

With --scores the figures come from a file of `evaluate --json` or of `reproduce` that scored this
very coreset as it is. Then run `python tools/render.py`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from pseudocoreset import Pseudocoreset, evaluate, load_data
from pseudocoreset.engine.files import write_json
from pseudocoreset.gallery import FOLDER

KEPT = ("accuracy", "nll", "nll_kim", "ece", "brier")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("coreset", type=Path, help="a coreset, or the folder of a run")
    parser.add_argument("--data", help="the data it was made of; scores it on their test points")
    parser.add_argument("--scores", type=Path, help="figures of this very coreset")
    parser.add_argument("--precision", default="half", choices=("full", "half", "byte"))
    parser.add_argument("--seeds", type=int, default=10, help="chains to sample")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    path = arguments.coreset
    coreset = Pseudocoreset.load(path / "coreset.safetensors" if path.is_dir() else path)
    if (arguments.data is None) == (arguments.scores is None):
        parser.error("give one of --data and --scores")
    if arguments.scores is None:
        coreset = coreset.rounded(arguments.precision)
        data = load_data(arguments.data)
        found = evaluate(coreset, data, seeds=arguments.seeds, device=arguments.device)
        content = found.as_json()
    else:
        content = json.loads(arguments.scores.read_text(encoding="utf-8"))
    written = FOLDER / f"{file_name(coreset)}.safetensors"
    about = entry(coreset, content)
    if not (written.exists() and Pseudocoreset.load(written) == coreset):
        coreset.save(written, precision=coreset.precision)
    write_json(written.with_suffix(".json"), about)
    print(f"{written}: {100 * about['chain']['accuracy']:.1f} %, {written.stat().st_size:,} B")


def file_name(coreset: Pseudocoreset) -> str:
    made = coreset.provenance
    recipe = made.config.get("recipe")
    return f"{made.data}-{'best' if recipe == 'best' else made.method}-ipc{coreset.ipc}"


def entry(coreset: Pseudocoreset, content: dict[str, Any]) -> dict[str, Any]:
    """What the JSON file says: what it is, the scores of one chain and of all, the protocol."""
    if "coresets" in content:  # a cell of `reproduce beyond`
        (one,) = [c for c in content["coresets"] if c["fingerprint"] == coreset.fingerprint]
        scores = one["scores"]["sghmc"]
        chain, pooled, chains = scores["chain"], scores["pooled"], scores["chains"]
        fingerprint, protocol = one["fingerprint"], scores["protocol"]
    else:
        chain, pooled, chains = content, content.get("pooled"), len(content["seeds"])
        fingerprint, protocol = content["coreset"]["fingerprint"], content["protocol"]
    if fingerprint != coreset.fingerprint:
        raise SystemExit("the scores are of another coreset")
    made = coreset.provenance
    return {
        "data": made.data,
        "ipc": coreset.ipc,
        "recipe": made.config.get("recipe"),
        "method": made.method,
        "fingerprint": coreset.fingerprint,
        "chains": chains,
        "chain": {name: chain[name] for key in KEPT for name in (key, f"{key}_std")},
        "pooled": pooled and {name: pooled[name] for name in KEPT},
        "protocol": protocol,
    }


if __name__ == "__main__":
    main()
