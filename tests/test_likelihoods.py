"""Losses, progress and predictions against PyTorch's distributions, closed forms and slow twins."""

import json
from math import exp, inf, log, nan, pi

import pytest
import torch
from torch import distributions
from torch.nn import functional as F

from pseudocoreset.errors import UserError
from pseudocoreset.likelihoods import Categorical, Gaussian, Likelihood

CASES = ["classes", "probabilities", "numbers"]


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def case(name: str, n: int = 6) -> tuple[Likelihood, torch.Tensor]:
    """A likelihood of 3 outputs and targets for n points."""
    if name == "numbers":
        return Gaussian(3, noise=0.7), drawn(n, 3, seed=5)
    soft = drawn(n, 3, seed=6).softmax(1)
    return Categorical(3), soft if name == "probabilities" else soft.argmax(1)


def log_prob(likelihood: Likelihood, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """By PyTorch's distributions; a row of probabilities is the mean over classes."""
    if isinstance(likelihood, Gaussian):
        noise = torch.full_like(outputs, likelihood.noise)
        return distributions.Normal(outputs, noise).log_prob(targets).sum(-1)
    assert isinstance(likelihood, Categorical)
    of = distributions.Categorical(logits=outputs)
    if targets.ndim == 1:
        return of.log_prob(targets)
    each = [of.log_prob(torch.tensor(k)) for k in range(likelihood.classes)]
    return sum(targets[:, k] * each[k] for k in range(likelihood.classes))


@pytest.mark.parametrize("name", CASES)
def test_losses_are_minus_the_log_of_the_distribution(name):
    likelihood, targets = case(name)
    outputs = drawn(6, 3)
    expected = -log_prob(likelihood, outputs, targets)
    assert likelihood.outputs == 3
    torch.testing.assert_close(likelihood.losses(outputs, targets), expected)
    torch.testing.assert_close(likelihood.loss(outputs, targets), expected.mean())


@pytest.mark.parametrize("name", ["classes", "probabilities"])
def test_categorical_loss_is_pytorchs_cross_entropy_to_the_bit(name):
    likelihood, targets = case(name)
    outputs = drawn(6, 3).float()
    targets = targets if targets.ndim == 1 else targets.float()
    assert torch.equal(likelihood.loss(outputs, targets), F.cross_entropy(outputs, targets))


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_the_loss_are_finite_differences(name):
    likelihood, targets = case(name)
    outputs = drawn(6, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda f: likelihood.loss(f, targets), outputs)
    assert torch.autograd.gradgradcheck(lambda f: likelihood.loss(f, targets), outputs)


@pytest.mark.parametrize("name", CASES)
def test_nothing_has_a_loss_below_the_lowest(name):
    likelihood, targets = case(name)
    outputs = drawn(6, 3).requires_grad_()
    optimiser = torch.optim.LBFGS([outputs], max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = likelihood.loss(outputs, targets)
        loss.backward()
        return loss

    optimiser.step(closure)
    found = float(likelihood.loss(outputs.detach(), targets))
    lowest = likelihood.lowest(targets)
    assert lowest - 1e-12 <= found <= lowest + 1e-4


def test_lowest_of_a_certain_row_is_0():
    assert Categorical(3).lowest(torch.eye(3)) == 0


def test_gaussian_of_little_noise_has_a_lowest_loss_below_0():
    assert Gaussian(2, 0.01).lowest(drawn(4, 2)) == pytest.approx(2 * (log(0.01) + log(2 * pi) / 2))


def test_progress_is_the_share_of_right_classes():
    outputs = torch.tensor([[2.0, 1, 0], [0, 1, 2], [0, 3, 1], [1, 0, 0]])
    targets = torch.tensor([0, 1, 1, 0])
    for form in (targets, F.one_hot(targets, 3) * 0.8 + 0.1):
        assert float(Categorical(3).progress_figure(outputs, form)) == 0.75
    assert Categorical.figure_name == "accuracy"


def test_progress_is_the_root_of_the_mean_squared_error():
    outputs, targets = torch.tensor([[1.0, 2], [3, 4]]), torch.tensor([[1.0, 0], [0, 4]])
    assert float(Gaussian(2).progress_figure(outputs, targets)) == pytest.approx((13 / 4) ** 0.5)
    assert Gaussian.figure_name == "rmse"


def test_one_target_may_come_as_a_vector():
    outputs, targets = drawn(5, 1), drawn(5, seed=1)
    likelihood = Gaussian(noise=0.3)
    for function in (likelihood.losses, likelihood.loss, likelihood.progress_figure):
        assert torch.equal(function(outputs, targets), function(outputs, targets[:, None]))
    with pytest.raises(RuntimeError):
        likelihood.losses(outputs, drawn(5, 2))


@pytest.mark.parametrize("name", CASES)
def test_nll_of_a_mixture_is_that_of_the_mean_probability(name):
    likelihood, targets = case(name)
    outputs = drawn(4, 6, 3)
    if name == "probabilities":
        mean = outputs.softmax(2).mean(0)
        expected = -(targets * mean.log()).sum(1)
    else:
        each = [log_prob(likelihood, sample, targets).exp() for sample in outputs]
        expected = -torch.log(sum(each) / 4)
    torch.testing.assert_close(likelihood.nll_of_mixture(outputs, targets), expected)
    one = likelihood.nll_of_mixture(outputs[:1], targets)
    torch.testing.assert_close(one, likelihood.losses(outputs[0], targets))


@pytest.mark.parametrize(
    ("likelihood", "outputs", "target", "expected"),
    [
        (Categorical(2), [[-500.0, 500], [-400, 500]], 0, 900 + log(2)),
        (Gaussian(), [[100.0], [90.0]], [0.0], 4050 + log(2) + log(2 * pi) / 2),
    ],
)
def test_nll_of_a_mixture_is_finite_where_every_sample_is_far_off(
    likelihood, outputs, target, expected
):
    found = likelihood.nll_of_mixture(torch.tensor(outputs)[:, None], torch.tensor([target]))
    assert float(found) == pytest.approx(expected)


def test_predicted_classes_equal_their_slow_twin():
    outputs = 2 * drawn(5, 4, 3)
    found = Categorical(3).predict(outputs)
    for point in range(4):
        rows = []
        for sample in range(5):
            values = [exp(float(value)) for value in outputs[sample, point]]
            rows.append([value / sum(values) for value in values])
        mean = [sum(row[k] for row in rows) / 5 for k in range(3)]
        # I(class; sample) = Σ_s 1/S Σ_k p_s(k) log(p_s(k) / p(k))
        information = sum(row[k] * log(row[k] / mean[k]) for row in rows for k in range(3)) / 5
        assert found.probs[point].tolist() == pytest.approx(mean)
        assert float(found.entropy[point]) == pytest.approx(-sum(p * log(p) for p in mean))
        assert float(found.mutual_information[point]) == pytest.approx(information)
        assert int(found.classes[point]) == max(range(3), key=mean.__getitem__)
    assert found.samples is None
    assert len(found) == 4


def test_samples_that_agree_have_no_mutual_information():
    outputs = (5 * drawn(1, 50, 10)).float().expand(7, -1, -1)
    information = Categorical(10).predict(outputs).mutual_information
    assert ((information >= 0) & (information < 1e-5)).all()


def test_samples_that_are_sure_of_other_classes_have_all_of_it():
    outputs = torch.tensor([[[200.0, -200]], [[-200, 200]]])
    found = Categorical(2).predict(outputs)
    assert float(found.entropy) == pytest.approx(log(2))
    assert float(found.mutual_information) == pytest.approx(log(2))


@pytest.mark.parametrize("name", ["classes", "numbers"])
def test_samples_are_kept_when_asked_for(name):
    likelihood, _ = case(name)
    outputs = drawn(4, 6, 3)
    expected = outputs if name == "numbers" else outputs.log_softmax(2)
    torch.testing.assert_close(likelihood.predict(outputs, keep_samples=True).samples, expected)


def test_predicted_numbers_are_the_moments_of_the_mixture():
    outputs, noise = drawn(5, 4, 2), 0.4
    found = Gaussian(2, noise).predict(outputs)
    # By integration of the mixture's density over a fine grid.
    grid = torch.linspace(-8, 8, 20001, dtype=torch.float64)
    for point in range(4):
        for target in range(2):
            parts = distributions.Normal(outputs[:, point, target, None], noise)
            density = parts.log_prob(grid).exp().mean(0)
            mean = torch.trapezoid(grid * density, grid)
            variance = torch.trapezoid((grid - mean) ** 2 * density, grid)
            torch.testing.assert_close(found.mean[point, target], mean)
            torch.testing.assert_close(found.std[point, target], variance.sqrt())
    torch.testing.assert_close(found.epistemic_std**2 + noise**2, found.std**2)
    assert found.samples is None
    assert len(found) == 4


class Scaled:
    mean = (3.0, -1.0)
    std = (2.0, 10.0)


def test_numbers_go_back_to_raw_units():
    outputs = drawn(5, 4, 2)
    scaled = Gaussian(2, 0.4).predict(outputs, keep_samples=True)
    raw = scaled.unscaled(Scaled())
    mean, std = (torch.tensor(part, dtype=torch.float64) for part in (Scaled.mean, Scaled.std))
    raw_samples = outputs * std + mean
    torch.testing.assert_close(raw.samples, raw_samples)
    torch.testing.assert_close(raw.mean, raw_samples.mean(0))
    torch.testing.assert_close(raw.epistemic_std, raw_samples.std(0, correction=0))
    total = raw_samples.var(0, correction=0) + (0.4 * std) ** 2
    torch.testing.assert_close(raw.std, total.sqrt())
    assert scaled.unscaled(None) is scaled


@pytest.mark.parametrize("likelihood", [Categorical(10), Gaussian(1, 0.7), Gaussian(3, 1)])
def test_likelihoods_are_values_that_files_hold(likelihood):
    again = Likelihood.from_json(json.loads(json.dumps(likelihood.as_json())))
    assert again == likelihood
    assert hash(again) == hash(likelihood)
    assert again != Categorical(11)


@pytest.mark.parametrize(
    "fields",
    [
        None,
        [],
        "categorical",
        {},
        {"kind": "poisson\x1b"},
        {"kind": "categorical"},
        {"kind": "categorical", "classes": "10"},
        {"kind": "categorical", "classes": True},
        {"kind": "categorical", "classes": 0},
        {"kind": "categorical", "classes": 10**400},
        {"kind": "categorical", "classes": 10, "more": 1},
        {"kind": "gaussian", "targets": 1},
        {"kind": "gaussian", "targets": 1, "noise": None},
        {"kind": "gaussian", "targets": 1, "noise": 0.0},
        {"kind": "gaussian", "targets": 1, "noise": nan},
        {"kind": ["gaussian"], "targets": 1, "noise": 1.0},
    ],
)
def test_a_likelihood_that_is_none_is_refused(fields):
    with pytest.raises(UserError) as caught:
        Likelihood.from_json(fields)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: Categorical(0), "classes"),
        (lambda: Gaussian(0), "targets"),
        (lambda: Gaussian(1, -1.0), "noise"),
        (lambda: Gaussian(1, inf), "noise"),
    ],
)
def test_impossible_values_are_refused_by_parameter(make, parameter):
    with pytest.raises(UserError) as caught:
        make()
    assert caught.value.parameter == parameter


@pytest.mark.cuda
@pytest.mark.parametrize("name", CASES)
def test_losses_are_captured_in_a_cuda_graph(name):
    likelihood, targets = case(name)
    outputs, targets = drawn(6, 3).cuda(), targets.cuda()
    functions = (likelihood.loss, likelihood.losses, likelihood.progress_figure)
    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):
        expected = [function(outputs, targets) for function in functions]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [function(outputs, targets) for function in functions]
    graph.replay()
    torch.testing.assert_close(found, expected)
