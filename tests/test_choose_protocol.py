"""The script that chooses the evaluation protocol."""

import json
import sys
from types import SimpleNamespace

import choose_protocol
from pseudocoreset import distill, load_data

NLLS = {0.2: (1.0, 1.5), 0.5: (1.1, 1.2)}
"""By prior: ours, and that of Kim et al., by which the other one is better."""


def test_choose_protocol_takes_the_best_mean_of_both_nlls(tmp_path, monkeypatch):
    run = tmp_path / "run"
    data = load_data("digits")
    distill(data, method="random", ipc=1, out=run, device="cpu", progress=False)

    def scored(_, __, sampler, seeds, split):
        assert (seeds, split, sampler.temperature) == (2, "holdout", 1e-6)
        nll, kim = NLLS[sampler.prior]
        content = dict.fromkeys(choose_protocol.SCORES, 0.5) | {"nll": nll, "nll_kim": kim}
        return SimpleNamespace(as_json=lambda: {**content, "protocol": {"epochs": 1}})

    monkeypatch.setattr(choose_protocol, "evaluate", scored)
    out = tmp_path / "protocol.json"
    words = [run, "--data", "digits", "--holdout", 100, "--prior", 0.2, 0.5, "--out", out]
    monkeypatch.setattr(sys, "argv", ["choose_protocol.py", *map(str, words)])
    choose_protocol.main()
    found = json.loads(out.read_text())
    assert found["chosen"] == {"prior": 0.5}
    assert [(row["run"], row["changes"]["prior"], row["nll"]) for row in found["rows"]] == [
        ("run", 0.2, 1.0),
        ("run", 0.5, 1.1),
    ]
    assert str(tmp_path) not in found["command"]
