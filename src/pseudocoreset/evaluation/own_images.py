"""Predictions for a person's own image files."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from pseudocoreset.data.assemble import resize
from pseudocoreset.data.decode import read_image
from pseudocoreset.data.npz import channels_first, read_arrays
from pseudocoreset.engine.device import choose_device
from pseudocoreset.errors import UserError
from pseudocoreset.evaluation.metrics import predictive
from pseudocoreset.evaluation.predictive import log_samples_of, predictor_of
from pseudocoreset.posterior import Posterior


def predict_files(
    posterior: Posterior, paths: Sequence[Path], device: str = "auto"
) -> list[dict[str, Any]]:
    """A row an image: probabilities by class, entropy, mutual information, in nats.

    Images are resized and normalised as the coreset's were. The entropy of the averaged prediction
    is all uncertainty; the mutual information is the part of it that comes from not knowing the
    weights: what is left when each sample's own entropy is taken off.
    """
    if "stats=batch" in posterior.net:
        warnings.warn(
            f"{posterior.net} normalises by the statistics of the images that are given together, "
            "so each prediction depends on the others: give many at once, or train and sample a "
            "network with stats=kept.",
            RuntimeWarning,
            stacklevel=2,
        )
    parts = [_read(path, posterior) for path in paths]
    names = [name for part_names, _ in parts for name in part_names]
    images = torch.cat([part for _, part in parts]).to(choose_device(device))
    log_samples = log_samples_of(posterior, predictor_of(posterior, images)).double()
    log_mean = predictive(log_samples)
    total = _entropy(log_mean)
    information = (total - _entropy(log_samples).mean(0)).clamp(min=0)
    return [
        {
            "image": name,
            "class": posterior.class_names[int(row.argmax())],
            "probabilities": dict(zip(posterior.class_names, row.tolist(), strict=True)),
            "entropy": float(entropy),
            "mutual_information": float(mutual),
        }
        for name, row, entropy, mutual in zip(
            names, log_mean.exp(), total, information, strict=True
        )
    ]


def _entropy(log_probabilities: Float[Tensor, "*n k"]) -> Float[Tensor, "*n"]:
    probabilities = log_probabilities.exp()
    return -torch.xlogy(probabilities, probabilities).sum(-1)


def _read(path: Path, posterior: Posterior) -> tuple[list[str], UInt8[Tensor, "n c h w"]]:
    channels, side = len(posterior.normalisation.mean), posterior.image_size
    if not path.is_file():
        reason = "is a folder" if path.is_dir() else "does not exist"
        raise UserError(f"{path} {reason}: give image files, or an .npz with `images`.")
    if path.suffix != ".npz":
        image = torch.from_numpy(read_image(path, channels, side, fit=True).copy())
        return [str(path)], image[None]
    images = channels_first(path, "images", read_arrays(path, ("images",))["images"])
    if not len(images):
        raise UserError(f"{path} holds no images: give some to predict.")
    if images.shape[1] != channels:
        raise UserError(
            f"{path}: the images have {images.shape[1]} channels and the posterior is for "
            f"{channels}: convert them."
        )
    tensor = torch.from_numpy(np.ascontiguousarray(images))
    if images.shape[-1] != side:
        tensor = resize(tensor, side)
    return [f"{path}[{number}]" for number in range(len(tensor))], tensor
