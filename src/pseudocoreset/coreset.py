"""The pseudocoreset itself: a few synthetic images, and all that is needed to use them."""

import hashlib
import platform
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.utils.data import TensorDataset

from pseudocoreset.data import Normalisation
from pseudocoreset.engine.files import open_tensors, write_tensors
from pseudocoreset.errors import UserError

FORMAT = 1
KIND = "a coreset"


@cache
def code_digest() -> str:
    """A digest of the package's own source, which names the code where a version does not."""
    folder = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """The versions that a figure or a file was made with."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("pseudocoreset")
    except PackageNotFoundError:  # run from a source tree that is not installed
        own = "source"
    return {
        "pseudocoreset": own,
        "code": code_digest(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class Provenance:
    """Where a coreset comes from."""

    method: str
    net: str
    data: str
    data_fingerprint: str
    holdout: int
    seed: int
    config: dict[str, Any] = field(default_factory=dict)
    experts: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=versions)


@dataclass(frozen=True)
class Pseudocoreset:
    """Synthetic images, normalised, with labels: classes, or probabilities where they are learned.

    `dsa` names the kinds of augmentation that the set was made for; posteriors use them too.
    """

    images: Float[Tensor, "m c h w"]
    labels: Shaped[Tensor, "m ..."]
    class_names: tuple[str, ...]
    normalisation: Normalisation
    dsa: str
    provenance: Provenance

    def __len__(self) -> int:
        return len(self.images)

    @property
    def ipc(self) -> int:
        """Images per class."""
        return len(self) // len(self.class_names)

    @property
    def classes(self) -> Shaped[Tensor, " m"]:
        """The class of each image; of learned labels, the most probable."""
        return self.labels if self.labels.ndim == 1 else self.labels.argmax(1)

    @property
    def fingerprint(self) -> str:
        """A digest of the images and labels."""
        digest = hashlib.blake2b(digest_size=16)
        for tensor in (self.images, self.labels):
            digest.update(tensor.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def as_dataset(self) -> TensorDataset:
        """A map-style data set of (image, label), for anybody's data loader."""
        return TensorDataset(self.images, self.labels)

    def to(self, device: torch.device) -> "Pseudocoreset":
        """The same with its tensors on another device."""
        moved = {"images": self.images.to(device), "labels": self.labels.to(device)}
        return Pseudocoreset(**{**self.__dict__, **moved})

    def save(self, path: Path | str, half: bool = False) -> None:
        """Write one safetensors file, whole or not at all; `half` stores images as float16."""
        images = self.images.half() if half else self.images
        metadata = {
            "kind": KIND,
            "format": FORMAT,
            "class_names": self.class_names,
            "normalisation": asdict(self.normalisation),
            "image_size": self.images.shape[-1],
            "dsa": self.dsa,
            "provenance": asdict(self.provenance),
        }
        write_tensors(Path(path), {"images": images, "labels": self.labels}, metadata)

    @staticmethod
    def load(path: Path | str) -> "Pseudocoreset":
        """Read what `save` wrote."""
        with open_tensors(Path(path), KIND) as (tensors, metadata):
            if metadata["format"] != FORMAT:
                raise UserError(
                    f"{path} has format {metadata['format']} and this version reads {FORMAT}: "
                    "install the version that wrote it."
                )
            stored = metadata["normalisation"]
            return Pseudocoreset(
                tensors.get_tensor("images").float(),
                tensors.get_tensor("labels"),
                class_names=tuple(metadata["class_names"]),
                normalisation=Normalisation(tuple(stored["mean"]), tuple(stored["std"])),
                dsa=metadata["dsa"],
                provenance=Provenance(**metadata["provenance"]),
            )
