"""The reference of the logistic regression against NUTS, by another library (extra `nuts`)."""

import pytest
import torch

from pseudocoreset.reproduce.exact.logistic import Model, Sampling, sampled
from pseudocoreset.reproduce.exact.moments import kl, mmd, sample_moments
from pseudocoreset.reproduce.exact.problems import PRIOR, logistic_regression

numpyro = pytest.importorskip("numpyro", reason="needs the extra `nuts`")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
PROBLEM = logistic_regression(0)


def model_of(points: int | None) -> Model:
    """The posterior of all data, or of random points that count as much."""
    generator = torch.Generator().manual_seed(3)
    chosen = PROBLEM.train if points is None else PROBLEM.random_points(points, generator)
    signs = 2.0 * chosen.targets.double() - 1
    return Model(PROBLEM.features(chosen.inputs), signs, PROBLEM.weight(len(chosen.inputs)))


def by_nuts(model: Model, chains: int = 4, kept: int = 2500) -> torch.Tensor:
    """Samples of the same posterior."""
    import jax
    import jax.numpy as jnp
    from numpyro import distributions, factor
    from numpyro import sample as site
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    phi, signs = jnp.asarray(model.phi.numpy()), jnp.asarray(model.signs.numpy())

    def posterior() -> None:
        prior = distributions.Normal(0.0, PRIOR**-0.5).expand([phi.shape[1]]).to_event(1)
        theta = site("theta", prior)
        factor("data", model.weight * jax.nn.log_sigmoid(signs * (phi @ theta)).sum())

    run = MCMC(
        NUTS(posterior),
        num_warmup=1000,
        num_samples=kept,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    run.run(jax.random.PRNGKey(0))
    return torch.tensor(run.get_samples()["theta"].__array__().copy())


@pytest.mark.parametrize("points", [None, 10])
def test_reference_has_the_posterior_of_nuts(points):
    model = model_of(points)
    ours = sampled(model, Sampling(), torch.Generator().manual_seed(0))
    theirs = by_nuts(model)
    moments = sample_moments(theirs)
    assert float(kl(ours.moments, moments)) < 0.15
    assert float(kl(moments, ours.moments)) < 0.15
    assert abs(float(mmd(ours.samples, theirs, moments))) < 2e-3
    laplace, root = model.laplace()
    crude = sample_moments(laplace + torch.randn(20_000, len(laplace)).double() @ root.T)
    assert float(kl(crude, moments)) > 0.3  # what the limits tell apart
