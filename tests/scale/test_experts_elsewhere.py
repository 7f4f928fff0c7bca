"""Experts that other processes train are those that are trained here, file for file."""

import json
import os
import signal
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import active_children

import own_code
import pytest
import torch

from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertOptions, train_experts
from pseudocoreset.experts import elsewhere as elsewhere_module
from pseudocoreset.scale import ProcessExecutor, SerialExecutor

NET = "convnet:depth=2,width=8"
FEW = ExpertOptions(num=3, epochs=2, lr=0.1, batch=20)


def trained(data, out, executor=None, net=NET, settings=FEW):
    return train_experts(data, net, out, settings, device="cpu", executor=executor, progress=False)


def contents(store):
    return {path.name: path.read_bytes() for path in sorted(store.path.iterdir())}


@pytest.mark.parametrize("net", [NET, own_code.WithDropout])
def test_store_is_the_same_file_for_file(data, tmp_path, net):
    here = trained(data, tmp_path / "here", net=net)
    there = trained(data, tmp_path / "there", ProcessExecutor(2), net)
    assert contents(there) == contents(here)


def test_store_of_a_table_in_half_precision_is_the_same(table, tmp_path):
    settings = replace(FEW, half=True, from_epoch=1)
    here = trained(table, tmp_path / "here", net="mlp:depth=1,width=8", settings=settings)
    there = trained(table, tmp_path / "there", SerialExecutor(), "mlp:depth=1,width=8", settings)
    assert contents(there) == contents(here)


def test_store_says_where_each_expert_was_made(data, tmp_path):
    store = trained(data, tmp_path, SerialExecutor(), settings=replace(FEW, num=1))
    made = json.loads(store.made_path(0).read_text())
    threads = torch.get_num_threads()
    assert made == {"device": "cpu", "threads": threads, "versions": versions()}


def test_only_what_is_missing_is_trained(data, tmp_path, monkeypatch):
    trained(data, tmp_path / "parts", settings=replace(FEW, num=1))
    asked = []
    train_one = elsewhere_module.train_one

    def noted(shared, number):
        asked.append(number)
        return train_one(shared, number)

    monkeypatch.setattr(elsewhere_module, "train_one", noted)
    parts = trained(data, tmp_path / "parts", SerialExecutor())
    assert asked == [1, 2]
    assert contents(parts) == contents(trained(data, tmp_path / "whole"))


def test_expert_that_diverges_is_told_of(data, tmp_path):
    with pytest.raises(UserError, match="diverged") as error:
        trained(data, tmp_path, ProcessExecutor(1), settings=replace(FEW, num=1, lr=1e30))
    assert error.value.parameter == "lr"


class Recorded:
    """Progress that is written down."""

    def __init__(self):
        self.begun, self.steps = [], 0

    @contextmanager
    def task(self, *what):
        self.begun.append(what)
        yield self

    def advance(self, **_):
        self.steps += 1


def test_progress_is_one_bar(data, tmp_path):
    progress = Recorded()
    train_experts(
        data, NET, tmp_path, FEW, device="cpu", executor=SerialExecutor(), progress=progress
    )
    assert progress.begun == [("experts", 6, 0)]
    assert progress.steps == 6


class KillsOnce(Recorded):
    """Progress that kills a worker when the first step is done."""

    killed = None

    def advance(self, **_):
        if self.killed is None:
            self.killed = active_children()[0]
            os.kill(self.killed.pid, signal.SIGKILL)


def test_store_is_the_same_though_a_worker_is_killed(data, tmp_path):
    here = trained(data, tmp_path / "here")
    progress, out = KillsOnce(), tmp_path / "there"
    executor = ProcessExecutor(2)
    there = train_experts(data, NET, out, FEW, device="cpu", executor=executor, progress=progress)
    assert progress.killed.exitcode == -signal.SIGKILL
    assert contents(there) == contents(here)
