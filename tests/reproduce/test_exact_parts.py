"""FBPC's construction on exact models, part by part, against the package and closed forms."""

from dataclasses import replace

import pytest
import torch
from test_exact import DATA, PHI, SIGNS, drawn_from, logistic_truth

from pseudocoreset.augment import Augmentation
from pseudocoreset.engine.random import Rng
from pseudocoreset.experts import ExpertStore
from pseudocoreset.methods import Context, Points
from pseudocoreset.methods.function_space import OutputVariance
from pseudocoreset.methods.map_solution import MapSolver
from pseudocoreset.nets import Weights, make_net
from pseudocoreset.reproduce.exact import logistic
from pseudocoreset.reproduce.exact.linear import LinearTruth
from pseudocoreset.reproduce.exact.moments import sample_moments
from pseudocoreset.reproduce.exact.parts import (
    PaperMoments,
    of_coreset,
    spread_over_steps,
    weights_of,
)
from pseudocoreset.reproduce.exact.problems import (
    AS_IN_THE_PAPER,
    linear_regression,
    logistic_regression,
)
from pseudocoreset.training import RealPoints, coreset_points

CPU = torch.device("cpu")
PROBLEM = logistic_regression(0)
NET = make_net(PROBLEM.net, **PROBLEM.data.shape)
CONTEXT = Context(
    NET,
    None,
    RealPoints(PROBLEM.data.train, PROBLEM.data.scaling, None),
    Augmentation(()),
    PROBLEM.likelihood,
    10**9,
)


def test_map_solutions_and_their_variances_are_those_of_the_package():
    start = PROBLEM.random_points(12, torch.Generator().manual_seed(0))
    plain = Points(start.inputs.float(), start.targets)
    rng = Rng(CPU, 3, "parts")
    expected, variances = [], []
    for _ in range(3):
        solution = MapSolver(AS_IN_THE_PAPER, CONTEXT, None, rng).solve(plain)
        assert solution.reached
        weights = Weights(*(part.clone() for part in solution.weights))
        expected.append(weights.params)
        over_steps = OutputVariance(CONTEXT, coreset_points, AS_IN_THE_PAPER.lr_u, 30, None, rng)
        variances.append(over_steps.along(weights, plain.inputs, plain._asdict(), None)[:, 1])
    phi = PROBLEM.features(start.inputs)
    generator = Rng(CPU, 3, "parts").device
    found = of_coreset(NET, phi, start.targets.double(), AS_IN_THE_PAPER, 3, generator)
    torch.testing.assert_close(found.means, weights_of(torch.stack(expected)), atol=1e-4, rtol=1e-3)
    mine = torch.einsum("md,rde,me->rm", phi, found.covariances, phi)
    torch.testing.assert_close(mine, torch.stack(variances).double(), atol=1e-6, rtol=1e-2)


def test_variance_over_steps_on_the_data_is_that_of_the_package():
    rng = Rng(CPU, 0, "parts")
    weights = NET.init(rng.device)
    points = PROBLEM.random_points(5, torch.Generator().manual_seed(1)).inputs
    index = torch.randint(len(PROBLEM.data.train), (30, 1, 256), generator=rng.host)
    of_package = OutputVariance(CONTEXT, CONTEXT.real, 0.05, 30, 256, rng)
    expected = of_package.along(weights, points.float(), {}, index.flatten())[:, 1]
    train, theta = PROBLEM.train, weights_of(weights.params[None])
    phi = PROBLEM.features(train.inputs)
    (found,) = spread_over_steps(theta, phi, train.targets.double(), 0.05, index)
    at = PROBLEM.features(points)
    mine = ((at @ found) * at).sum(1)
    torch.testing.assert_close(mine, expected.double(), atol=1e-6, rtol=1e-3)


def test_samples_of_both_posteriors_give_the_gradient_of_the_forward_kl():
    problem = linear_regression(0, 3, 40)
    truth = LinearTruth(problem, torch.Generator().manual_seed(0))
    start = problem.random_points(4, torch.Generator().manual_seed(0))
    leaves = [part.clone().requires_grad_() for part in start]
    expected = torch.autograd.grad(truth.loss("forward-kl")(Points(*leaves)), leaves)
    by_samples = truth._by_samples(20_000)
    total = [torch.zeros_like(part) for part in start]
    for _ in range(5):  # chains walk on
        found = torch.autograd.grad(by_samples(Points(*leaves)), leaves)
        total = [one + each / 5 for one, each in zip(total, found, strict=True)]
    for mine, theirs in zip(total, expected, strict=True):
        scale = float(theirs.abs().max())
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0.03 * scale)


def gradient_of(loss):
    leaf = PHI.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(logistic.Model(leaf, SIGNS, 2.0)), leaf)
    return found


THETA = drawn_from(logistic.Model(PHI, SIGNS, 2.0), 20_000)


def test_chains_on_the_data_give_the_gradient_of_many_samples():
    by_samples, many = logistic_truth()._by_samples(4000), drawn_from(DATA, 100_000)
    expected = gradient_of(lambda model: logistic._difference(model, many, THETA))
    found = sum(gradient_of(lambda model: by_samples(model, THETA)) for _ in range(8)) / 8
    scale = float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05 * scale)


def test_drawn_values_have_the_gradient_of_the_quadrature(monkeypatch):
    monkeypatch.setattr(logistic, "AS_IN_THE_PAPER", replace(AS_IN_THE_PAPER, samples=20_000))
    truth = logistic_truth()
    expected = gradient_of(lambda model: truth._by_moments(model, THETA))
    found = gradient_of(lambda model: truth._by_drawn_values(model, THETA))
    scale = float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=0, atol=0.008 * scale)


def test_curvature_is_the_inverse_hessian_at_the_mode():
    mode, covariance = (part[0] for part in logistic._laplace(DATA))

    def density(theta):
        return DATA.log_density(theta[None])[0]

    slope = torch.autograd.functional.jacobian(density, mode)
    hessian = -torch.autograd.functional.hessian(density, mode)
    torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-4, rtol=0)
    torch.testing.assert_close(covariance @ hessian, torch.eye(2).double(), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("method", "wrong"),
    [("fbpc-average", ""), ("fbpc-exact-means", "means"), ("fbpc-exact-variances", "covariances")],
)
def test_exact_parts_take_the_place_of_the_papers(monkeypatch, method, wrong):
    """With the paper's moments made exact but for the wrong ones, which must not count."""

    def several(moments):
        found = PaperMoments(moments.mean.T.repeat(3, 1), moments.covariance.repeat(3, 1, 1))
        return found._replace(**{wrong: 7 + getattr(found, wrong)}) if wrong else found

    truth = logistic_truth()
    truth._problem = PROBLEM
    monkeypatch.setattr(logistic, "of_all_experts", lambda *_: several(truth.moments))
    monkeypatch.setattr(logistic, "of_coreset", lambda *_: several(sample_moments(THETA)))
    loss = truth._by_parts(method, object.__new__(ExpertStore))
    expected = gradient_of(lambda model: truth._by_moments(model, THETA))
    torch.testing.assert_close(gradient_of(lambda model: loss(model, THETA)), expected)
