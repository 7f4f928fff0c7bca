"""J Σ Jᵀ of a small network, exactly: its outputs' variance where it is linear around θ."""

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.likelihoods import Likelihood
from pseudocoreset.methods import Points
from pseudocoreset.nets import Net, Weights


def jacobian(net: Net, weights: Weights, inputs: Float[Tensor, "n ..."]) -> Float[Tensor, "n k p"]:
    """∂g(x)/∂θ at each input.

    Args:
        net: the network
        weights: θ
        inputs: the points, scaled
    """

    def outputs(params: Tensor, one: Tensor) -> Tensor:
        return net.apply(Weights(params, weights.buffers), one[None])[0]

    found: Tensor = torch.func.vmap(torch.func.jacrev(outputs), (None, 0))(weights.params, inputs)
    return found


def posterior_covariance(
    net: Net,
    weights: Weights,
    points: Points,
    likelihood: Likelihood,
    *,
    weight: float,
    prior: float,
) -> Float[Tensor, "p p"]:
    """Σ = (τ + weight · Σ_i J_iᵀ Λ_i J_i)⁻¹ with Λ the Hessian of a point's loss in its outputs.

    It is the posterior's covariance where the network is linear around θ and the likelihood
    Gaussian, and Laplace's approximation with the Gauss-Newton matrix elsewhere.

    Args:
        net: the network
        weights: θ
        points: inputs and targets that the posterior is of
        likelihood: of the targets
        weight: how many times each point counts
        prior: precision τ
    """
    inputs, targets = points
    by_point = jacobian(net, weights, inputs)
    outputs = net.apply(weights, inputs)

    def loss(values: Tensor, target: Tensor) -> Tensor:
        return likelihood.losses(values[None], target[None])[0]

    hessian = torch.func.jacrev(torch.func.jacrev(loss))
    curvature = torch.func.vmap(hessian)(outputs, targets)
    gauss_newton = torch.einsum("nkp,nkl,nlq->pq", by_point, curvature, by_point)
    one = torch.eye(len(gauss_newton), dtype=gauss_newton.dtype)
    return torch.cholesky_inverse(torch.linalg.cholesky(prior * one + weight * gauss_newton))


def linearised_variance(
    net: Net, weights: Weights, inputs: Float[Tensor, "m ..."], covariance: Float[Tensor, "p p"]
) -> Float[Tensor, "m k"]:
    """The diagonal of J Σ Jᵀ: the variance of each output at each input.

    Args:
        net: the network
        weights: θ
        inputs: where
        covariance: Σ
    """
    by_point = jacobian(net, weights, inputs)
    return torch.einsum("mkp,pq,mkq->mk", by_point, covariance, by_point)
