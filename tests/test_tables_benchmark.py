"""The benchmark of tables: scores without a model, and a short run."""

import json
import sys

import pytest
import torch
from torch.distributions import Normal

import pseudocoreset as pc
import tables
from pseudocoreset.experts import ExpertOptions


def test_no_model_predicts_the_mean_or_the_shares_of_the_classes():
    data = tables.load("diabetes")
    y, hidden = data.train.targets.double(), data.test.targets.double()
    expected = -Normal(y.mean(), y.std(correction=0)).log_prob(hidden).mean()
    found = tables.without_model(data)
    assert found["nll"] == pytest.approx(float(expected))
    assert found["rmse"] ** 2 == pytest.approx(float((hidden - y.mean()).square().mean()))
    data = tables.load("rare")
    counts = torch.tensor(data.train.class_counts(3))
    assert counts.argmax() == 0
    found = tables.without_model(data)
    assert found["accuracy"] == pytest.approx(float((data.test.targets == 0).double().mean()))
    wanted = -(counts / counts.sum()).log()[data.test.targets].mean()
    assert found["nll"] == pytest.approx(float(wanted))


def test_run_stores_the_scores_of_each_seed(monkeypatch, tmp_path):
    whole, made = pc.train_experts, pc.distill

    def shorter(*given, **options):
        return whole(*given, options=ExpertOptions(num=1, epochs=21), **options)

    def fewer(data, experts, method="fbpc", **options):
        return made(
            data, experts, method, **options, **({} if method == "random" else {"steps": 1})
        )

    monkeypatch.setattr(pc, "train_experts", shorter)
    monkeypatch.setattr(pc, "distill", fewer)
    out = tmp_path / "tables.json"
    argv = ["tables.py", "--seeds", "1", "--tables", "diabetes", "moons", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", argv)
    assert tables.main() == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["table"] for row in rows] == ["diabetes", "moons"]
    assert [set(row["fbpc"]) for row in rows] == [{"rmse", "nll"}, {"accuracy", "nll"}]
    assert all(row["random"] != row["fbpc"] for row in rows)
