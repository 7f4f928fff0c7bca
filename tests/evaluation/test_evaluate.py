"""`evaluate`: what it is given, what it refuses, and the JSON that others read."""

import json
from contextlib import nullcontext
from dataclasses import replace
from statistics import stdev

import pytest
import torch

from pseudocoreset import DistillSettings, distill
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.evaluate import Evaluation, evaluate
from pseudocoreset.evaluation.metrics import Scores, score
from pseudocoreset.evaluation.predictive import (
    CPU_BATCH,
    TEST_BATCH,
    Predictor,
    log_samples_of,
    predictor_of,
)
from pseudocoreset.nets import make_net
from pseudocoreset.posterior import Protocol, sample_posterior
from small_world import NET, make_data

SHORT = Protocol(epochs=60, every=20, step=0.05)


@pytest.fixture(scope="module")
def data():
    return make_data()


@pytest.fixture(scope="module")
def coreset(data):
    return distill(data, (), DistillSettings("random", ipc=2), net=NET, device="cpu")


@pytest.fixture(scope="module")
def evaluation(coreset, data):
    return evaluate(coreset, data, protocol=SHORT, seeds=2, device="cpu")


def test_json_has_the_keys_of_the_contract(evaluation, coreset, data):
    told = json.loads(json.dumps(evaluation.as_json(), allow_nan=False))
    for name in ("accuracy", "nll", "nll_kim", "ece", "brier", "disagreement"):
        values = [seed[name] for seed in told["seeds"]]
        assert told[name] == pytest.approx(sum(values) / 2)
        assert told[f"{name}_std"] == pytest.approx(stdev(values))
    assert len(told["seeds"]) == len(told["samplers"]) == 2
    assert 0 <= told["accuracy"] <= 1
    protocol = told["protocol"]
    assert (protocol["sampler"], protocol["split"], protocol["images"]) == ("sghmc", "test", 30)
    assert protocol["temperature"] == pytest.approx(SHORT.temperature_for(6))
    assert protocol["weight_decay"] == pytest.approx(SHORT.prior / 6)
    assert told["coreset"]["fingerprint"] == coreset.fingerprint
    assert told["coreset"]["data_fingerprint"] == data.fingerprint
    assert set(told["reliability"]) == {"share", "confidence", "accuracy"}
    assert [sampler["seed"] for sampler in told["samplers"]] == [0, 1]


def test_seeds_are_posteriors_of_the_same_coreset(evaluation, coreset, data):
    for seed in (0, 1):
        posterior = sample_posterior(coreset, protocol=SHORT, seed=seed, device="cpu")
        predictor = predictor_of(posterior, data.test.images)
        found = score(log_samples_of(posterior, predictor), data.test.labels)
        assert found == evaluation.seeds[seed]
    shifted = evaluate(coreset, data, protocol=SHORT, seeds=1, first_seed=1, device="cpu")
    assert shifted.seeds == evaluation.seeds[1:]
    assert shifted.std("accuracy") == 0


def test_it_learns(evaluation):
    """Two images a class are enough for bands."""
    assert evaluation.mean("accuracy") > 0.6


def test_predictions_are_those_of_modules(coreset, data):
    posterior = sample_posterior(coreset, protocol=SHORT, device="cpu")
    images = data.test.images
    found = log_samples_of(posterior, predictor_of(posterior, images))
    module = posterior.make_net().build().eval()
    for params, logs in zip(posterior.params, found, strict=True):
        torch.nn.utils.vector_to_parameters(params, module.parameters())
        with torch.no_grad():
            expected = module(data.normalisation.apply(images)).log_softmax(1)
        torch.testing.assert_close(logs, expected, rtol=1e-4, atol=1e-5)


def test_mean_and_deviation_over_seeds():
    seeds = [Scores(a, 1.0, 1.0, 0.0, 0.0, 0.0) for a in (0.5, 0.7)]
    evaluation = Evaluation(seeds, [], {}, {}, {})
    assert evaluation.mean("accuracy") == pytest.approx(0.6)
    assert evaluation.std("accuracy") == pytest.approx(0.02**0.5)


def test_holdout_is_scored_where_it_was_kept_out(data):
    kept = data.hold_out(6)
    coreset = distill(kept, (), DistillSettings("random", ipc=2), net=NET, device="cpu")
    found = evaluate(coreset, kept, protocol=SHORT, seeds=1, split="holdout", device="cpu")
    assert found.protocol["images"] == 6
    assert found.coreset["holdout"] == 6


def test_refusals_of_splits(coreset, data):
    def score_on(split, of=data):
        return evaluate(coreset, of, protocol=SHORT, seeds=1, split=split, device="cpu")

    with pytest.raises(UserError, match=r"--split holdout needs .* --holdout N"):
        score_on("holdout")
    with pytest.raises(UserError, match="--split valid is not known"):
        score_on("valid")
    with pytest.raises(UserError, match=r"with --holdout 0, so it may have seen the images"):
        score_on("holdout", data.hold_out(6))
    with pytest.raises(UserError, match="--seeds 0"):
        evaluate(coreset, data, protocol=SHORT, seeds=0, device="cpu")


def test_data_of_another_shape_are_refused(coreset, data):
    other = replace(data, class_names=("a", "b", "c"))
    with pytest.raises(
        UserError, match="have classes a, b, c and the coreset was made for class 0"
    ):
        evaluate(coreset, other, protocol=SHORT, device="cpu")
    large = replace(
        data,
        train=replace(data.train, images=data.train.images.repeat(1, 1, 2, 2)),
        test=replace(data.test, images=data.test.images.repeat(1, 1, 2, 2)),
    )
    with pytest.raises(UserError, match="have image size 16 and the coreset was made for 8"):
        evaluate(coreset, large, protocol=SHORT, device="cpu")
    colour = replace(data, train=replace(data.train, images=data.train.images.repeat(1, 3, 1, 1)))
    with pytest.raises(UserError, match="have channels 3 and the coreset was made for 1"):
        evaluate(coreset, colour, protocol=SHORT, device="cpu")


def test_it_tells_of_its_chains_and_of_its_predictions(coreset, data):
    class Heard(list):
        def task(self, what, total, done=0):  # noqa: ARG002
            self.append([what, total])
            return nullcontext(self)

        def advance(self, **figures):
            self[-1].append(sorted(figures))

    heard = Heard()
    evaluate(coreset, data, protocol=SHORT, seeds=2, device="cpu", progress=heard)
    keeps = SHORT.epochs // SHORT.every
    chains, predictions = heard
    assert chains == ["sghmc", 2 * keeps, *[["loss"]] * 2 * keeps]
    assert predictions == ["predict", 2 * keeps, *[[]] * 2 * keeps]


@pytest.mark.parametrize("norm", ["instance", "batch"])
def test_images_that_count_for_one_another_are_predicted_together(data, norm):
    net = make_net(f"{NET},norm={norm}", **data.shape)
    images = torch.cat([data.train.images, data.test.images, data.train.images.flip(0)])[:-10]
    assert 2 * CPU_BATCH < len(images) <= TEST_BATCH  # several whole batches, and what is left over
    assert len(images) % CPU_BATCH
    predictor = Predictor(net, images, data.normalisation)
    for seed in range(2):
        weights = net.init(torch.Generator().manual_seed(seed))
        expected = net.apply(weights, data.normalisation.apply(images))
        found = predictor.logits(weights)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
