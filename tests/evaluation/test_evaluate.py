"""`evaluate`: what it is given, what it refuses, and the JSON that others read."""

import json
import pickle
import warnings
from contextlib import nullcontext
from dataclasses import replace
from statistics import stdev

import pytest
import torch

from pseudocoreset import SGHMC, UserError, distill, evaluate, sample
from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import Split
from pseudocoreset.evaluation.evaluate import Evaluation
from pseudocoreset.evaluation.metrics import Predicted, Scores, scores
from pseudocoreset.evaluation.points import same_data
from pseudocoreset.nets import make_net
from pseudocoreset.posterior import Ensemble, Posterior, sample_posteriors
from pseudocoreset.posterior.sample import chains_for
from pseudocoreset.predictor import CPU_BATCH, TEST_BATCH, Predictor
from small_world import NET, make_method

SHORT = SGHMC(epochs=60, every=20, step=0.05)
QUIET = {"device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def coreset(data):
    return distill(data, (), "random", ipc=2, net=NET, **QUIET)


@pytest.fixture(scope="module")
def evaluation(coreset, data):
    return evaluate(coreset, data, SHORT, seeds=2, **QUIET)


@pytest.fixture(scope="module")
def posterior(coreset):
    return sample(coreset, SHORT, chains=1, **QUIET)


SCALARS = ("accuracy", "nll", "nll_kim", "ece", "brier", "disagreement", "balanced_accuracy")


def test_json_has_the_keys_of_the_contract(evaluation, coreset, data):
    found = json.loads(json.dumps(evaluation.as_json(), allow_nan=False))
    for name in (*SCALARS, "largest_class"):
        values = [seed[name] for seed in found["seeds"]]
        assert found[name] == pytest.approx(sum(values) / 2)
        assert found[f"{name}_std"] == pytest.approx(stdev(values))
    assert len(found["seeds"]) == len(found["samplers"]) == 2
    assert 0 <= found["accuracy"] <= 1
    protocol = found["protocol"]
    assert (protocol["sampler"], protocol["split"], protocol["images"]) == ("sghmc", "test", 30)
    assert (protocol["chains"], protocol["weight"]) == (1, 1.0)
    assert protocol["temperature"] == pytest.approx(SHORT.temperature_for(6))
    assert protocol["weight_decay"] == pytest.approx(SHORT.prior / 6)
    assert found["coreset"]["fingerprint"] == coreset.fingerprint
    assert found["coreset"]["data_fingerprint"] == data.fingerprint
    assert set(found["reliability"]) == {"share", "confidence", "accuracy"}
    assert [sampler["seed"] for sampler in found["samplers"]] == [0, 1]
    assert found["pooled"].keys() >= {*SCALARS, "class_accuracy", "confusion"}


def log_samples(posterior, data):
    return posterior.outputs(data.test.inputs, scaling=posterior.scaling).log_softmax(2)


def test_seeds_are_posteriors_of_the_same_coreset(evaluation, coreset, data):
    for seed in (0, 1):
        posterior = sample(coreset, SHORT, chains=1, seed=seed, **QUIET)
        found = scores(Predicted(log_samples(posterior, data), data.test.targets))
        assert found == evaluation.seeds[seed]
    shifted = evaluate(coreset, data, SHORT, seeds=1, first_seed=1, **QUIET)
    assert shifted.seeds == evaluation.seeds[1:]
    assert shifted.std("accuracy") == 0


def test_pooled_are_the_scores_of_all_samples_together(evaluation, coreset, data):
    work = chains_for(coreset, SHORT, 1, None)
    parts = sample_posteriors(coreset, work, seeds=[0, 1], **QUIET)
    together = torch.cat([log_samples(posterior, data) for posterior in parts])
    assert len(together) == 6
    expected = scores(Predicted(together, data.test.targets), all_of_them=True)
    assert evaluation.pooled == expected
    assert evaluation.pooled.nll != evaluation.seeds[0].nll


@pytest.mark.parametrize("chains", [1, 2])
def test_posterior_scores_as_its_coreset_with_one_seed(coreset, data, chains):
    posterior = sample(coreset, SHORT, chains=chains, **QUIET)
    whole = evaluate(coreset, data, SHORT, seeds=1, chains=chains, **QUIET)
    alone = evaluate(posterior, data, **QUIET)
    assert alone.as_json() == whole.as_json()
    assert len(alone.seeds) == 1
    assert dict(alone.pooled).items() >= dict(alone.seeds[0]).items()


def test_posterior_read_from_a_file_scores_the_same(posterior, data, tmp_path):
    posterior.save(tmp_path / "posterior.safetensors")
    loaded = Posterior.load(tmp_path / "posterior.safetensors")
    assert evaluate(loaded, data, **QUIET).as_json() == evaluate(posterior, data, **QUIET).as_json()


def test_two_images_a_class_are_enough_for_bands(evaluation):
    assert evaluation.mean("accuracy") > 0.6


def test_predictions_are_those_of_modules(posterior, data):
    found = posterior.outputs(data.test.inputs, scaling=data.scaling)
    module = posterior.make_net().build().eval()
    for params, outputs in zip(posterior.params, found, strict=True):
        torch.nn.utils.vector_to_parameters(params, module.parameters())
        with torch.no_grad():
            expected = module(data.scaling.apply(data.test.inputs))
        torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)


def test_mean_and_deviation_over_seeds():
    seeds = [Scores({"accuracy": a, "nll": 1.0}) for a in (0.5, 0.7)]
    evaluation = Evaluation(seeds, [], {}, {}, {})
    assert evaluation.mean("accuracy") == evaluation.accuracy == pytest.approx(0.6)
    assert evaluation.std("accuracy") == pytest.approx(0.02**0.5)
    assert repr(evaluation) == "accuracy 0.6000 ± 0.1414, nll 1.0000 ± 0.0000"
    assert repr(Evaluation(seeds[:1], [], {}, {}, {})) == "accuracy 0.5000, nll 1.0000"
    for missing in ("rmse", "speed", "_values"):
        with pytest.raises(AttributeError):
            getattr(evaluation, missing)


def test_scores_are_read_by_name_and_as_attributes():
    found = Scores({"accuracy": 0.5, "confusion": [[1, 0], [1, 0]]})
    assert found.accuracy == found["accuracy"] == 0.5
    assert (len(found), list(found), found) == (2, ["accuracy", "confusion"], dict(found))
    assert repr(found) == "Scores(accuracy=0.5000)"
    assert pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(AttributeError):
        found.speed  # noqa: B018
    with pytest.raises(KeyError):
        found["speed"]


def test_holdout_is_scored_where_it_was_kept_out(data):
    kept = data.hold_out(6)
    coreset = distill(kept, (), "random", ipc=2, net=NET, **QUIET)
    found = evaluate(coreset, kept, SHORT, seeds=1, split="holdout", **QUIET)
    assert found.protocol["images"] == 6
    assert found.coreset["holdout"] == 6


def chains_of(what):
    """Short chains for a coreset; a posterior has none to be sampled."""
    return SHORT if isinstance(what, Pseudocoreset) else "tuned"


def refused(what, data, **more):
    """The parameter that is named where this is refused."""
    with pytest.raises(UserError) as error:
        evaluate(what, data, SHORT, **{"seeds": 1, **QUIET, **more})
    return error.value.parameter


def test_splits_that_can_not_be_scored_are_refused(coreset, data):
    assert refused(coreset, data, split="holdout") == "split"
    assert refused(coreset, data, split="valid") == "split"
    assert refused(coreset, data.hold_out(6), split="holdout") == "holdout"
    assert refused(coreset, data, seeds=0) == "seeds"
    assert refused(coreset, data, chains=0) == "chains"


def test_data_of_another_shape_are_refused(coreset, posterior, data, table):
    larger = {"inputs": data.train.inputs.repeat(1, 1, 2, 2)}
    colour = {"inputs": data.train.inputs.repeat(1, 3, 1, 1)}
    others = [
        replace(data, class_names=("a", "b", "c")),
        replace(data, train=replace(data.train, **larger)),
        replace(data, train=replace(data.train, **colour)),
        table,
    ]
    for other in others:
        for what in (coreset, posterior):
            assert refused(what, other, other_data=True) == "data"


# Other data than the coreset was made of.


def changed(split, place=3):
    """One point of a split, changed by one byte."""
    inputs = split.inputs.clone()
    inputs[place, 0, 0, 0] ^= 1
    return Split(inputs, split.targets)


@pytest.fixture(params=["coreset", "posterior"])
def made(request, coreset, posterior):
    return coreset if request.param == "coreset" else posterior


@pytest.mark.parametrize("part", ["train", "test"])
def test_data_with_one_point_changed_are_refused(made, data, part):
    other = replace(data, **{part: changed(getattr(data, part))})
    assert refused(made, other) == "data"
    assert not same_data(made, other)
    assert same_data(made, data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluate(made, other, chains_of(made), seeds=1, other_data=True, **QUIET)
    assert 0 <= found.accuracy <= 1


def test_data_with_one_point_more_or_less_or_another_label_are_refused(made, data):
    fewer = Split(data.test.inputs[1:], data.test.targets[1:])
    more = Split(data.test.inputs[[0, *range(30)]], data.test.targets[[0, *range(30)]])
    labels = Split(data.test.inputs, data.test.targets.roll(1))
    for test in (fewer, more, labels):
        assert refused(made, replace(data, test=test)) == "data"


def test_points_in_another_order_are_the_same_data(made, data):
    test = Split(data.test.inputs.flip(0), data.test.targets.flip(0))
    chains = chains_of(made)
    found = evaluate(made, replace(data, test=test), chains, seeds=1, **QUIET)
    assert found.accuracy == evaluate(made, data, chains, seeds=1, **QUIET).accuracy


def test_coreset_made_with_a_holdout_is_of_the_same_data_without_it(data):
    coreset = distill(data.hold_out(6), (), "random", ipc=2, net=NET, **QUIET)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(coreset, data, SHORT, seeds=1, **QUIET)
    assert same_data(coreset, data)
    assert refused(coreset, data.hold_out(9), split="holdout") == "holdout"


def test_other_points_held_out_than_when_it_was_made_are_refused(data):
    """Which points are held out follows from their order, which the digests do not tell."""
    coreset = distill(data.hold_out(6), (), "random", ipc=2, net=NET, **QUIET)
    train = Split(data.train.inputs.flip(0), data.train.targets.flip(0))
    for other in (replace(data, train=train).hold_out(6), data.hold_out(6, seed=1)):
        assert refused(coreset, other, split="holdout") == "holdout"
        assert same_data(coreset, other)
        assert not same_data(coreset, other, "holdout")


def of_the_first_edition(coreset, **changes):
    """As a file says it that has one fingerprint and no digests."""
    kept = coreset.provenance.as_json()
    for name in ("train_digest", "test_digest", "num_train", "class_counts", "net_source"):
        del kept[name]
    return replace(coreset, provenance=Provenance.from_json(kept | changes))


def test_coreset_of_the_first_edition_is_known_by_its_fingerprint(coreset, data, tmp_path):
    old = of_the_first_edition(coreset)
    old.save(tmp_path / "old.safetensors")
    for made in (old, Pseudocoreset.load(tmp_path / "old.safetensors")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            evaluate(made, data, SHORT, seeds=1, **QUIET)
        assert refused(made, replace(data, test=changed(data.test))) == "data"
    assert refused(of_the_first_edition(coreset, data_fingerprint="f00"), data) == "data"


def test_coreset_of_the_first_edition_with_another_holdout_is_warned_of(data):
    """Its one fingerprint is of what was left, so nothing can be compared."""
    coreset = distill(data.hold_out(6), (), "random", ipc=2, net=NET, **QUIET)
    old = of_the_first_edition(coreset)
    with pytest.warns(RuntimeWarning):
        evaluate(old, data, SHORT, seeds=1, **QUIET)


def test_coreset_of_unknown_data_is_warned_of(coreset, data):
    unknown = of_the_first_edition(coreset, data_fingerprint="")
    with pytest.warns(RuntimeWarning, match="does not say which data"):
        evaluate(unknown, data, SHORT, seeds=1, **QUIET)


# Regression.


def test_regression_is_scored_in_raw_units(table, table_store):
    method = make_method("fbpc-isotropic", gamma=2.0)
    coreset = distill(
        table, table_store, method, ipc=8, steps=1, lr_images=0.01, recipe="paper", **QUIET
    )
    posterior = sample(coreset, SGHMC(epochs=200, every=50), chains=1, **QUIET)
    found = evaluate(posterior, table, **QUIET)
    assert (found.pooled_temperature, dict(found.pooled_calibrated)) == (None, {})
    assert found.single.rmse > 0
    with pytest.raises(UserError, match="`predictive_temperature` is for classes"):
        evaluate(posterior, table, predictive_temperature=2.0, **QUIET)
    assert set(found.names) == {"rmse", "nll", "coverage", "mean_rmse"}
    rows = []
    module = posterior.make_net().build().eval()
    mean, std = (torch.tensor(v) for v in (table.target_scaling.mean, table.target_scaling.std))
    for params in posterior.params:
        torch.nn.utils.vector_to_parameters(params, module.parameters())
        with torch.no_grad():
            rows.append(module(table.scaling.apply(table.test.inputs)) * std + mean)
    away = torch.stack(rows).mean(0) - table.test.targets
    assert found.rmse == pytest.approx(float(away.square().mean().sqrt()), rel=1e-4)
    assert found.rmse < float(table.test.targets.std())  # better than the mean alone
    mixture = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(torch.ones(len(rows))),
        torch.distributions.Independent(
            torch.distributions.Normal(
                torch.stack(rows, 1), coreset.likelihood.noise * std.expand(len(rows), -1)
            ),
            1,
        ),
    )
    nll = -mixture.log_prob(table.test.targets).mean()
    assert found.nll == pytest.approx(float(nll), rel=1e-4)
    assert repr(found).startswith("rmse ")


def test_progress_names_chains_and_predictions(coreset, data):
    class Heard(list):
        def task(self, what, total, done=0):  # noqa: ARG002
            self.append([what, total])
            return nullcontext(self)

        def advance(self, **figures):
            self[-1].append(sorted(figures))

    heard = Heard()
    evaluate(coreset, data, SHORT, seeds=2, device="cpu", progress=heard)
    keeps = SHORT.epochs // SHORT.every
    chains, predictions = heard
    assert chains == ["sghmc", 2 * keeps, *[["loss"]] * 2 * keeps]
    assert predictions == ["predict", 2 * keeps, *[[]] * 2 * keeps]


@pytest.mark.parametrize("norm", ["instance", "batch"])
def test_images_that_count_for_one_another_are_predicted_together(data, norm):
    net = make_net(f"{NET},norm={norm}", **data.shape)
    images = torch.cat([data.train.inputs, data.test.inputs, data.train.inputs.flip(0)])[:-10]
    assert 2 * CPU_BATCH < len(images) <= TEST_BATCH  # several whole batches, and what is left over
    assert len(images) % CPU_BATCH
    predictor = Predictor(net, images, data.scaling)
    for seed in range(2):
        weights = net.init(torch.Generator().manual_seed(seed))
        expected = net.apply(weights, data.scaling.apply(images))
        found = predictor.outputs(weights)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_evaluate_refuses_a_sampler_for_a_posterior(posterior, data):
    with pytest.raises(UserError) as error:
        evaluate(posterior, data, SHORT, **QUIET)
    assert error.value.parameter == "sampler"


def test_single_is_the_mean_of_the_last_samples(evaluation, coreset, data):
    lasts = [log_samples(sample(coreset, SHORT, chains=1, seed=s, **QUIET), data) for s in (0, 1)]
    expected = [scores(Predicted(found[-1:], data.test.targets)) for found in lasts]
    for name in (*SCALARS, "largest_class"):
        assert evaluation.single[name] == pytest.approx(sum(e[name] for e in expected) / 2)
    assert evaluation.single.disagreement == 0
    assert evaluation.as_json()["single"] == dict(evaluation.single)


@pytest.mark.parametrize("sampler", [SHORT, Ensemble(epochs=6, every=2)], ids=["chains", "map"])
def test_single_takes_one_network_of_each_chain(coreset, data, sampler):
    posterior = sample(coreset, sampler, chains=2, **QUIET)
    found = log_samples(posterior, data)
    places = (2, 5) if sampler is SHORT else range(6)
    expected = [scores(Predicted(found[p : p + 1], data.test.targets)).nll for p in places]
    single = evaluate(posterior, data, **QUIET).single
    assert single.nll == pytest.approx(sum(expected) / len(expected))


def test_pooled_samples_are_scored_at_a_temperature_that_is_given(coreset, data):
    wrong = data.test.targets.clone()
    wrong[:9] = (wrong[:9] + 1) % 3  # nobody is right about these
    harder = replace(data, test=Split(data.test.inputs, wrong))
    options = {"seeds": 2, "other_data": True, **QUIET}
    plain = evaluate(coreset, harder, SHORT, **options)
    assert plain.as_json()["pooled_calibrated"] == {}
    best = plain.pooled_temperature
    again = evaluate(coreset, harder, SHORT, predictive_temperature=best, **options)
    at = again.pooled_calibrated
    assert again.as_json()["pooled_calibrated"] == dict(at)
    assert again.pooled == plain.pooled
    assert (at.temperature, at.accuracy) == (best, plain.pooled.accuracy)
    assert at.keys() == {"temperature", "accuracy", "nll", "ece", "brier"}
    assert at.nll < plain.pooled.nll
    for other in (0.9 * best, 1.1 * best):
        found = evaluate(coreset, harder, SHORT, predictive_temperature=other, **options)
        assert found.pooled_calibrated.nll > at.nll
    with pytest.raises(UserError, match="`predictive_temperature` is 0"):
        evaluate(coreset, data, SHORT, predictive_temperature=0, **QUIET)


def test_storage_is_in_the_json(evaluation, coreset):
    part = evaluation.as_json()["coreset"]
    assert part["stored_numbers"] == coreset.stored_numbers == 6 * 64 + 6
    assert part["stored_bytes"] == coreset.stored_bytes == 4 * 6 * 64 + 8 * 6
