"""The one shape in which every data set arrives."""

import hashlib
from dataclasses import dataclass, replace
from functools import cache, cached_property

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from pseudocoreset.errors import UserError


@cache
def _column(values: tuple[float, ...], device: torch.device) -> Float[Tensor, "c 1 1"]:
    """Channel values to multiply images by; kept, since a CUDA graph may not copy from the host."""
    return torch.tensor(values, dtype=torch.float32, device=device).view(-1, 1, 1)


@dataclass(frozen=True)
class Normalisation:
    """Per-channel (x − mean) / std, for pixels scaled to [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def apply(self, images: UInt8[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Bytes to normalised floats, on the device they are on."""
        # x / 255 / std − mean / std as one multiply and one add.
        scale = tuple(1 / (255 * s) for s in self.std)
        shift = tuple(-m / s for m, s in zip(self.mean, self.std, strict=True))
        return images * _column(scale, images.device) + _column(shift, images.device)

    def invert(self, images: Float[Tensor, "n c h w"]) -> UInt8[Tensor, "n c h w"]:
        """Normalised floats to bytes that can be looked at, clipped to what a pixel can show."""
        pixels = images * _column(self.std, images.device) + _column(self.mean, images.device)
        return (pixels * 255).round().clamp(0, 255).to(torch.uint8)

    @staticmethod
    def measured(images: UInt8[Tensor, "n c h w"]) -> "Normalisation":
        """The images' own mean and standard deviation, from exact counts of the 256 values."""
        values = torch.arange(256, dtype=torch.float64) / 255
        means, stds = [], []
        for channel in range(images.shape[1]):
            counts = torch.bincount(images[:, channel].reshape(-1), minlength=256).double()
            share = counts / counts.sum()
            mean = (share * values).sum()
            std = (share * (values - mean) ** 2).sum().sqrt()
            means.append(round(float(mean), 4))
            stds.append(round(max(float(std), 0.01), 4))  # an all-grey channel must not divide by 0
        return Normalisation(tuple(means), tuple(stds))


@dataclass(frozen=True)
class Split:
    """Images as bytes, and the class of each."""

    images: UInt8[Tensor, "n c h w"]
    labels: Int64[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Split":
        """The same on another device."""
        return Split(self.images.to(device), self.labels.to(device))

    def take(self, index: Int64[Tensor, " k"]) -> "Split":
        """The images at these positions."""
        return Split(self.images[index], self.labels[index])


@dataclass(frozen=True)
class ImageData:
    """A labelled image data set, whole, as bytes; batches are normalised as they are drawn.

    `mirror` says whether an image flipped left to right still shows its class (digits do not).
    `holdout` holds the training images that `hold_out` took away from everything that trains.
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]
    normalisation: Normalisation
    mirror: bool = True
    holdout: Split | None = None

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for colour."""
        return self.train.images.shape[1]

    @property
    def image_size(self) -> int:
        """The side of the (square) images."""
        return self.train.images.shape[-1]

    @property
    def shape(self) -> dict[str, int]:
        """What a network for these data must know: `make_net(spec, **data.shape)`."""
        return {"channels": self.channels, "image_size": self.image_size, "classes": self.classes}

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what can be trained on and of what is scored, holdout included."""
        digest = hashlib.blake2b(digest_size=16)
        for split in (self.train, self.test, self.holdout):
            if split is not None:
                for tensor in (split.images, split.labels):
                    digest.update(repr(tuple(tensor.shape)).encode())
                    digest.update(tensor.cpu().contiguous().numpy().data)
        digest.update(repr((self.class_names, self.normalisation)).encode())
        return digest.hexdigest()

    def to(self, device: torch.device) -> "ImageData":
        """The same with its images on another device."""
        holdout = None if self.holdout is None else self.holdout.to(device)
        moved = replace(
            self, train=self.train.to(device), test=self.test.to(device), holdout=holdout
        )
        if "fingerprint" in self.__dict__:  # a copy is the same data: keep what was computed
            moved.__dict__["fingerprint"] = self.fingerprint
        return moved

    def hold_out(self, number: int, seed: int = 0) -> "ImageData":
        """Keep `number` training images, equally many a class, out of all that trains.

        The choice depends on `seed` and on nothing else, so that experts, coresets and scores
        that name the same number speak of the same images.
        """
        if number == 0:
            return self
        if number < 0 or number % self.classes:
            raise UserError(
                f"--holdout {number} can't be split equally over the {self.classes} classes of "
                f"{self.name}: give 0 or a multiple of {self.classes}."
            )
        each = number // self.classes
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.train), generator=generator)
        labels = self.train.labels.cpu()[order]
        kept_out = torch.zeros(len(self.train), dtype=torch.bool)
        for label, name in enumerate(self.class_names):
            members = order[labels == label]
            if len(members) <= each:
                raise UserError(
                    f"--holdout {number} would take {each} images of class {name!r}, which has "
                    f"{len(members)}: give a smaller number."
                )
            kept_out[members[:each]] = True
        inside = kept_out.to(self.train.labels.device)
        return replace(
            self,
            train=self.train.take((~inside).nonzero().squeeze(1)),
            holdout=self.train.take(inside.nonzero().squeeze(1)),
        )
