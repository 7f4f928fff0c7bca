"""FBPC, the function-space Bayesian pseudocoreset (Kim, Lee and Lee, 2023), Algorithm 1."""

import torch
from jaxtyping import Float
from torch import Tensor

from pseudocoreset.augment import Draw
from pseudocoreset.divergences.base import Context, Estimate, Points
from pseudocoreset.divergences.function_space import (
    FunctionPosterior,
    OutputVariance,
    negative_log_likelihood,
)
from pseudocoreset.divergences.map_solution import MapSolver, random_order
from pseudocoreset.engine.loop import Loop, State
from pseudocoreset.engine.random import Rng
from pseudocoreset.engine.streams import Beside
from pseudocoreset.errors import UserError
from pseudocoreset.nets import Weights
from pseudocoreset.training import coreset_images, outputs_of


class FBPC:
    """The gradient of KL[ν_x ‖ ν_u] by equation `fbpc_mc_grad`.

        ∇_u ≈ 1/S Σ_s ( −∇_u log p(ỹ | μ̂_x + Ψ̂_x^½ ε_x) + ∇_u log p(ỹ | μ̂_u + Ψ̂_u^½ ε_u) )

    with means and covariances by equation `mu_and_Psi`: μ̂ = g_sg(θ)(u) at a MAP solution θ of the
    real data (an expert's snapshot) or of the coreset, and Ψ̂ the variance, without gradient, of
    the outputs over K more steps from there, each seeing u under an augmentation of its own.
    `isotropic` takes Ψ̂ = 1 and no steps.

    The means of both posteriors see u under the same augmentations. A coreset of more than
    `batch` images is updated `batch` images at a time.
    """

    def __init__(self, context: Context, isotropic: bool = False) -> None:
        if context.experts is None:
            raise UserError("FBPC needs trained experts: give --experts.")
        first, last = context.settings.from_epoch, context.settings.to_epoch
        context.experts.require(first, context.experts.last_epoch if last is None else last)
        self._context = context
        self._experts = context.experts
        self._isotropic = isotropic
        self._inner: _Inner | None = None

    def start(self) -> State:
        """FBPC keeps nothing between updates."""
        return {}

    def gradient(self, coreset: Points, state: State, rng: Rng) -> Estimate:
        """One pass through the body of Algorithm 1."""
        if self._inner is None or self._inner.rng is not rng:
            self._inner = _Inner(self._context, len(coreset.images), rng)
        inner, settings = self._inner, self._context.settings

        index = inner.draw_batch()
        batch = coreset if index is None else Points(*(part[index] for part in coreset))
        draws = inner.draw_augmentations(batch.images)
        theta_x = self._experts.draw(
            settings.from_epoch, rng, self._context.device, settings.to_epoch
        )
        if self._isotropic:
            solution = inner.solver.solve(coreset)
            unit = batch.images.new_ones((len(batch.images), self._context.net.classes))
            variance_x, variance_u = unit, unit
        else:
            with inner.beside:
                variance_x = inner.variance_on_real_data(theta_x, batch.images)
            solution = inner.solver.solve(coreset)
            variance_u = inner.variance_on_coreset(solution.weights, batch.images, coreset)
            inner.beside.wait()
        theta_u = solution.weights
        found = inner.estimate(batch, draws, (theta_x, variance_x), (theta_u, variance_u))
        info = {
            "loss_x": float(found["loss_x"]),
            "loss_u": float(found["loss_u"]),
            "variance_x": float(variance_x.mean()),
            "variance_u": float(variance_u.mean()),
            "map_loss": solution.loss,
            "map_steps": solution.steps,
            "map_missed": int(not solution.reached),
        }
        return Estimate(_spread(found, coreset, index), state, info)


def _spread(found: State, coreset: Points, index: Tensor | None) -> State:
    """The gradients of a batch as gradients of the whole coreset, zero elsewhere."""
    gradients = {
        name: found[f"gradient_{name}"]
        for name in ("images", "labels")
        if f"gradient_{name}" in found
    }
    if index is None:
        return {name: value.clone() for name, value in gradients.items()}
    return {
        name: torch.zeros_like(getattr(coreset, name)).index_copy(0, index, value)
        for name, value in gradients.items()
    }


class _Inner:
    """The loops of one update, made once: their steps are captured on first use."""

    def __init__(self, context: Context, size: int, rng: Rng) -> None:
        settings = context.settings
        self.rng = rng
        self._context = context
        self._size = size
        batch = settings.batch if settings.batch < size else None
        self._batch = batch
        self.solver = MapSolver(context, batch, rng)
        self.beside = Beside(context.device, apart=not context.net.draws)
        self._rng_beside = rng.beside()
        self._on_real = OutputVariance(
            context, context.real, settings.lr_x, settings.real_batch, self._rng_beside
        )
        self._on_coreset = OutputVariance(context, coreset_images, settings.lr_u, batch, rng)
        self._outputs = outputs_of(context.net, context.device)
        self._estimator = Loop(self._estimate, rng.device)

    def draw_batch(self) -> Tensor | None:
        """Which images this update moves; None for all."""
        return None if self._batch is None else random_order(self._size, self.rng)[: self._batch]

    def draw_augmentations(self, images: Float[Tensor, "b c h w"]) -> list[Draw]:
        """The siamese draws of this update."""
        return [
            self._context.augmentation.draw(len(images), images.shape[-1], self.rng.device)
            for _ in range(self._context.settings.draws)
        ]

    def variance_on_real_data(self, theta: Weights, points: Tensor) -> Tensor:
        """Ψ̂_x: K steps on batches of the real data."""
        settings = self._context.settings
        needed = settings.covariance_steps * settings.real_batch
        order = torch.randint(
            len(self._context.real.split),
            (needed,),
            generator=self._rng_beside.device,
            device=self._context.device,
        )
        return self._on_real.along(theta, points, {}, order)

    def variance_on_coreset(self, theta: Weights, points: Tensor, coreset: Points) -> Tensor:
        """Ψ̂_u: K steps on the coreset."""
        order = None if self._batch is None else random_order(self._size, self.rng)
        return self._on_coreset.along(theta, points, coreset._asdict(), order)

    def estimate(
        self,
        batch: Points,
        draws: list[Draw],
        data: tuple[Weights, Tensor],
        coreset: tuple[Weights, Tensor],
    ) -> State:
        """Equation `fbpc_mc_grad`, given MAP solution and variance of both posteriors."""
        inputs: State = dict(batch._asdict())
        for name, (weights, variance) in (("x", data), ("u", coreset)):
            inputs[f"params_{name}"], inputs[f"buffers_{name}"] = weights
            inputs[f"variance_{name}"] = variance
        for name in Draw._fields:
            inputs[f"draw_{name}"] = torch.stack([getattr(draw, name) for draw in draws])
        if not self._estimator.state:  # what the step is to write must be there before it
            zero = batch.images.new_zeros(())
            inputs |= {"loss_x": zero, "loss_u": zero, "gradient_images": batch.images}
            if batch.labels.is_floating_point():
                inputs["gradient_labels"] = batch.labels
        self._estimator.load(inputs)
        self._estimator.run(1)
        return self._estimator.state

    def _estimate(self, state: State) -> State:
        """The losses of both posteriors and the gradient of their difference.

        A posterior and a draw at a time, so that memory does not grow with the draws.
        """
        learned = ["images", "labels"] if state["labels"].is_floating_point() else ["images"]
        found = {f"gradient_{name}": torch.zeros_like(state[name]) for name in learned}
        for side, sign in (("x", 1), ("u", -1)):
            theta = Weights(state[f"params_{side}"], state[f"buffers_{side}"])
            losses = []
            for number in range(self._context.settings.draws):
                leaves = {name: state[name].detach().requires_grad_() for name in learned}
                draw = Draw(*(state[f"draw_{field}"][number] for field in Draw._fields))
                with torch.enable_grad():
                    points = self._context.augmentation.apply(leaves["images"], draw)
                    mean = self._outputs(theta, points)
                    posterior = FunctionPosterior(mean, state[f"variance_{side}"])
                    outputs = posterior.sample(self._context.settings.samples, self.rng.device)
                    labels = leaves.get("labels", state["labels"])
                    loss = negative_log_likelihood(outputs, labels)
                    gradients = torch.autograd.grad(loss, list(leaves.values()))
                losses.append(loss.detach())
                share = sign / self._context.settings.draws
                for name, gradient in zip(leaves, gradients, strict=True):
                    found[f"gradient_{name}"] += share * gradient
            found[f"loss_{side}"] = torch.stack(losses).mean()
        return found
