"""The samplers' rules against exact answers: Gaussians, a logistic regression, other optimisers."""

import warnings
from math import e

import pytest
import torch

from oracles.chains import logistic_moments, sghmc_covariance
from pseudocoreset.posterior import SAMPLERS, SGHMC, SGLD, Ensemble, LastLayer, named_sampler
from pseudocoreset.posterior.sghmc import SGHMCRule
from pseudocoreset.posterior.sgld import SGLDRule

IMAGES = 10


def run_chains(rule, potential_gradient, chains, size, *, warm_up, looks, between, seed=0):
    """θ and v of many parallel chains at several times: (looks·chains) × size each."""
    generator = torch.Generator().manual_seed(seed)
    params = torch.zeros(chains * size, dtype=torch.float64)
    state = {"params": params, **rule.slots(params)}
    thetas, velocities = [], []
    for step in range(warm_up + looks * between):
        gradient = potential_gradient(state["params"].view(chains, size)).reshape(-1)
        drawn = rule.draw(state["params"], generator)
        state = {**state, **rule.update({**state, **drawn}, gradient)}
        if step >= warm_up and (step - warm_up) % between == 0:
            thetas.append(state["params"].view(chains, size))
            velocities.append(state.get("velocity", params).view(chains, size))
    return torch.cat(thetas), torch.cat(velocities), state


def covariance(values):
    return values.T @ values / len(values)


def curvature_of(size):
    """Symmetric, positive, eigenvalues from 0.5 to 3; a decay of 0.2 comes on top of it."""
    generator = torch.Generator().manual_seed(size)
    matrix = torch.randn(size, size, generator=generator, dtype=torch.float64)
    basis, _ = torch.linalg.qr(matrix)
    return basis @ torch.diag(torch.linspace(0.5, 3.0, size, dtype=torch.float64)) @ basis.T


DECAY = 0.2


@pytest.mark.parametrize(("size", "friction"), [(1, 0.1), (2, 0.1), (10, 0.1), (2, 0.03)])
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_sghmc_on_a_gaussian_has_the_exact_covariance_of_its_recurrence(
    size, friction, temperature
):
    rule = SGHMCRule(0.03, friction, temperature, DECAY, IMAGES)
    hessian = curvature_of(size)
    theta, velocity, _ = run_chains(
        rule, lambda t: t @ hessian, 40_000 // size, size, warm_up=300, looks=10, between=30
    )
    whole = hessian + DECAY * torch.eye(size, dtype=torch.float64)
    exact, exact_velocity = sghmc_covariance(whole, 0.03, friction, rule.noise_std**2)
    scale, velocity_scale = float(exact.diag().mean()), float(exact_velocity.diag().mean())
    torch.testing.assert_close(covariance(theta), exact, rtol=0, atol=0.035 * scale)
    torch.testing.assert_close(
        covariance(velocity), exact_velocity, rtol=0, atol=0.035 * velocity_scale
    )
    truth = temperature / IMAGES * torch.linalg.inv(whole)
    torch.testing.assert_close(exact, truth, rtol=0, atol=0.03 * float(truth.diag().mean()))


def test_sghmc_at_a_large_step_is_near_its_target():
    """α = 0.1 and ηλ = 0.09: variance 1.02 of T/(mλ); moved by the old velocity it would be 10."""
    one = torch.ones(1, 1, dtype=torch.float64)
    exact, _ = sghmc_covariance(one, 0.09, 0.1, 2 * 0.09 * 0.1)
    assert float(exact) == pytest.approx(1.02, abs=0.005)
    rule = SGHMCRule(0.09, 0.1, 1.0, 0.0, 1)
    theta, _, _ = run_chains(rule, lambda t: t, 50_000, 1, warm_up=200, looks=10, between=20)
    assert float(covariance(theta)) == pytest.approx(float(exact), rel=0.02)


@pytest.mark.parametrize("friction", [0.01, 0.1, 0.5, 1.0])
def test_sghmc_tends_to_the_target_as_its_step_gets_small(friction):
    curvature = torch.tensor([[0.7]], dtype=torch.float64)
    away = []
    for step in (0.1, 0.01, 0.001):
        rule = SGHMCRule(step, friction, 0.3, 0.0, IMAGES)
        exact, _ = sghmc_covariance(curvature, step, friction, rule.noise_std**2)
        away.append(abs(float(exact) / (0.3 / (IMAGES * 0.7)) - 1))
    assert away[0] > away[1] > away[2]
    assert away[2] < 1e-3


def test_sghmc_on_a_logistic_regression_has_the_moments_of_the_posterior():
    """The potential of the rule is averaged, and the decay τ/m is a prior N(0, 1/τ)."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(IMAGES, 2, generator=generator, dtype=torch.float64)
    signs = torch.sign(inputs[:, 0] + 0.5 * inputs[:, 1]).clone()
    signs[:2] *= -1
    prior, temperature = 1.0, 1.0
    rule = SGHMCRule(0.03, 0.1, temperature, prior / IMAGES, IMAGES)

    def gradient(theta):  # of the mean of log(1 + exp(−y xᵀθ))
        return -(signs * torch.sigmoid(-signs * (theta @ inputs.T))) @ inputs / IMAGES

    theta, _, _ = run_chains(rule, gradient, 10_000, 2, warm_up=400, looks=20, between=40)
    mean, exact = logistic_moments(inputs, signs, prior, temperature)
    assert mean.abs().max() > 0.3
    spread = float(exact.diag().mean())
    torch.testing.assert_close(theta.mean(0), mean, rtol=0, atol=0.03 * spread**0.5)
    torch.testing.assert_close(torch.cov(theta.T), exact, rtol=0, atol=0.03 * spread)


def quadratic_descent(rule, steps):
    """θ after so many steps from 1 on the potential ½ θᵀHθ of size 4."""
    hessian, generator = curvature_of(4), torch.Generator().manual_seed(0)
    state = {"params": torch.ones(4, dtype=torch.float64)}
    state |= rule.slots(state["params"])
    for _ in range(steps):
        drawn = rule.draw(state["params"], generator)
        state = {**state, **rule.update({**state, **drawn}, hessian @ state["params"])}
    return state["params"], generator


def test_cosine_cycles_are_those_of_torch():
    """SGD with momentum 1 − α under CosineAnnealingWarmRestarts, whose velocity has no rate in it.

    There v ← βv + g and θ ← θ − η_t v; here the rate is inside v. They are the same only where η is
    constant, so the recurrence is written out.
    """
    cycle, steps = 7, 20
    rule = SGHMCRule(0.05, 0.1, 0.0, DECAY, IMAGES, cycle)
    found, _ = quadratic_descent(rule, steps)
    theta, velocity = torch.ones(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimiser, cycle)
    for _ in range(steps):
        rate = optimiser.param_groups[0]["lr"]
        force = curvature_of(4) @ theta + DECAY * theta
        velocity = 0.9 * velocity - rate * force
        theta = theta + velocity
        optimiser.step()
        scheduler.step()
    torch.testing.assert_close(found, theta)


def test_cosine_cycles_scale_the_noise_with_the_step():
    rule = SGHMCRule(0.03, 1.0, 1.0, 0.0, IMAGES, 2)
    params = torch.zeros(200_000, dtype=torch.float64)
    state = {"params": params, **rule.slots(params)}
    generator = torch.Generator().manual_seed(0)
    for share in (1.0, 0.5, 1.0):
        drawn = rule.draw(params, generator)
        state = {**state, **rule.update({**state, **drawn}, torch.zeros_like(params))}
        expected = 2 * 0.03 * share / IMAGES
        assert float(state["velocity"].square().mean()) == pytest.approx(expected, rel=0.02)


def test_samples_are_kept_where_a_cycle_ends():
    sampler = SGHMC(schedule="cosine", epochs=60, every=20, batch=4)
    assert sampler.rule(10, 1.0).cycle == 20 * 3
    assert SGHMC().rule(10, 1.0).cycle == 0


def test_sghmc_at_zero_temperature_is_sgd_with_momentum():
    found, generator = quadratic_descent(SGHMCRule(0.05, 0.1, 0.0, DECAY, IMAGES), 50)
    theta = torch.ones(4, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([theta], lr=0.05, momentum=0.9, weight_decay=DECAY)
    for _ in range(50):
        theta.grad = curvature_of(4) @ theta.detach()
        optimiser.step()
    torch.testing.assert_close(found, theta.detach(), rtol=1e-12, atol=1e-12)
    unused = torch.Generator().manual_seed(0)
    assert torch.equal(generator.get_state(), unused.get_state())


@pytest.fixture(scope="module")
def sghmc_of_posteriors():
    """The package `posteriors`, whose import warns of a change in tensordict."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from posteriors.sgmcmc import sghmc
    return sghmc


def test_velocity_is_that_of_the_package_posteriors(sghmc_of_posteriors):
    """lr = √η, alpha = α/√η, temperature = d/(ηα); theirs is v/√η, and θ moves a step later."""
    step, friction, temperature = 0.03, 0.1, 0.4
    rule = SGHMCRule(step, friction, temperature, DECAY, IMAGES)
    d = rule.noise_std**2 / 2
    hessian = curvature_of(4)

    def log_posterior(theta, _):
        return -(theta @ hessian @ theta + DECAY * theta @ theta) / 2, torch.zeros(())

    transform = sghmc_of_posteriors.build(
        log_posterior, step**0.5, friction / step**0.5, 0.0, 1.0, d / (step * friction)
    )
    generator = torch.Generator().manual_seed(7)
    for seed in range(20):
        theta, velocity = torch.randn(2, 4, generator=generator, dtype=torch.float64)
        state = {"params": theta, "velocity": velocity, "kinetic_sum": theta.new_zeros(())}
        state |= rule.draw(theta, torch.Generator().manual_seed(seed))
        ours = rule.update(state, hessian @ theta)
        start = sghmc_of_posteriors.SGHMCState(theta, velocity / step**0.5)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            theirs, _ = transform.update(start, None)
        torch.testing.assert_close(
            ours["velocity"], theirs.momenta * step**0.5, rtol=1e-12, atol=1e-12
        )
        torch.testing.assert_close(ours["params"], theta + ours["velocity"], rtol=0, atol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.01])
def test_kinetic_temperature_recovers_the_temperature(temperature):
    rule = SGHMCRule(0.01, 0.1, temperature, DECAY, IMAGES)
    hessian, steps = curvature_of(2), 400
    _, _, start = run_chains(
        rule, lambda t: t @ hessian, 10_000, 2, warm_up=200, looks=1, between=1
    )
    _, _, end = run_chains(
        rule, lambda t: t @ hessian, 10_000, 2, warm_up=200 + steps, looks=1, between=1
    )
    mean_square = float(end["kinetic_sum"] - start["kinetic_sum"]) / steps
    assert rule.kinetic_temperature(mean_square) == pytest.approx(temperature, rel=0.02)


def test_kinetic_temperature_of_free_motion_is_exact():
    rule = SGHMCRule(0.03, 0.1, 0.7, 0.0, IMAGES)
    _, velocity, _ = run_chains(
        rule, torch.zeros_like, 100_000, 1, warm_up=100, looks=10, between=50
    )
    found = rule.kinetic_temperature(float(velocity.square().mean()))
    assert found == pytest.approx(0.7, rel=0.01)


@pytest.mark.parametrize("step", [0.03, 0.3])
def test_sgld_on_a_gaussian(step):
    """θ ← (1−h)θ + N(0, 2ηT/m) has the variance T/(mλ) / (1 − h/2)."""
    rule = SGLDRule(step, 0.5, DECAY, IMAGES)
    theta, _, _ = run_chains(rule, lambda t: 0.8 * t, 50_000, 1, warm_up=300, looks=10, between=50)
    target = 0.5 / (IMAGES * 1.0)
    assert float(covariance(theta)) == pytest.approx(target / (1 - step / 2), rel=0.01)


def test_sgld_at_zero_temperature_is_sgd():
    found, _ = quadratic_descent(SGLDRule(0.05, 0.0, DECAY, IMAGES), 20)
    theta = torch.ones(4, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([theta], lr=0.05, weight_decay=DECAY)
    for _ in range(20):
        theta.grad = curvature_of(4) @ theta.detach()
        optimiser.step()
    torch.testing.assert_close(found, theta.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("images", "known"), [(10, 0.0067), (100, 0.00067), (500, 0.00013)])
def test_papers_temperature(images, known):
    """The noise N(0, 2d) with d = 0.01/m, read as a standard deviation 2d."""
    sampler = named_sampler("paper")
    assert (sampler.step, sampler.friction) == (0.03, 0.1)
    assert (sampler.epochs, sampler.every) == (1000, 100)
    temperature = sampler.temperature_for(images)
    assert temperature == pytest.approx(known, rel=0.03)
    assert temperature == pytest.approx(2 / (30 * images))
    rule = sampler.rule(images, 1.0)
    assert (rule.temperature, rule.decay) == (temperature, 0.0)
    assert rule.noise_std == pytest.approx(2 * 0.01 / images)


def test_bayes_is_the_posterior_itself():
    sampler = named_sampler("bayes")
    assert sampler.temperature_for(10) == sampler.temperature_for(500) == 1.0
    assert sampler.prior == 1.0


@pytest.mark.parametrize("friction", [0.1, 0.03])
def test_chain_forgets_its_start_as_friction_says(friction):
    """A flat likelihood leaves the prior alone: θ relaxes as exp(−t ητ/(αn))."""
    points, prior, step = 1000, 2.0, 0.05
    rule = SGHMC(step=step, prior=prior, temperature=0.0, friction=friction).rule(points, 1.0)
    theta = torch.full((1,), 5.0, dtype=torch.float64)
    state = {"params": theta, **rule.slots(theta)}
    for _ in range(round(friction * points / (step * prior))):
        state |= rule.update(state, torch.zeros_like(theta))
    assert float(state["params"]) == pytest.approx(5.0 / e, rel=0.12)


@pytest.mark.parametrize(
    "sampler", [SGHMC(temperature=1.0), SGLD(temperature=0.1), Ensemble(), LastLayer()]
)
def test_point_that_counts_so_often_is_a_set_that_repeats_it(sampler):
    """The same decay and the same noise, so the same chain: U counts weight·m points."""
    assert sampler.rule(4, 3.0) == sampler.rule(12, 1.0)
    assert sampler.rule(4, 3.0) != sampler.rule(4, 1.0)
    assert sampler.rule(4, 3.0).decay == pytest.approx(sampler.prior / 12)
    assert set(SAMPLERS.values()) == {SGHMC, SGLD, Ensemble, LastLayer}


@pytest.mark.parametrize("weight", [1.0, 25.0])
@pytest.mark.parametrize("kind", [SGHMC, SGLD])
def test_weighted_points_have_the_posterior_of_as_many(kind, weight):
    """y ~ N(θ, σ²) with θ ~ N(0, 1/τ): precision τ + wm/σ², at temperature 1."""
    targets = torch.tensor([0.4, 1.9, -0.3, 1.0], dtype=torch.float64)
    variance, prior = 0.5, 2.0
    rule = kind(step=0.02, prior=prior, temperature=1.0).rule(len(targets), weight)

    def gradient(theta):  # of the mean over the m points
        return (theta - targets.mean()) / variance

    theta, _, _ = run_chains(rule, gradient, 20_000, 1, warm_up=500, looks=10, between=60)
    count = weight * len(targets)
    precision = prior + count / variance
    assert float(theta.mean()) == pytest.approx(
        count * float(targets.mean()) / variance / precision, abs=0.03 / precision**0.5
    )
    assert float(theta.var()) == pytest.approx(1 / precision, rel=0.04)
