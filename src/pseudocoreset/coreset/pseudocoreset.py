"""The class `Pseudocoreset`: a few synthetic points and everything needed to use them."""

import hashlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.utils.data import TensorDataset

from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset.metadata import Units
from pseudocoreset.coreset.precision import BYTES, Packed, check_precision
from pseudocoreset.data import Column, Data, Scaling
from pseudocoreset.engine.files import open_tensors, write_tensors
from pseudocoreset.engine.text import printable
from pseudocoreset.engine.versions import versions
from pseudocoreset.errors import UserError
from pseudocoreset.forms import Form, Pixels, parse_form
from pseudocoreset.likelihoods import Categorical, Likelihood
from pseudocoreset.nets import Net, NetLike, make_net, make_stored_net

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

FORMATS = (1, 2)
"""Format 1 has images as pixels with classes. Format 2 has everything else."""
KIND = "a coreset"


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
    train_digest: str = ""
    """Of the training points, held-out ones included; empty in files of the first edition."""
    test_digest: str = ""
    num_train: int | None = None
    """Training points that the coreset stands for (n)."""
    class_counts: list[int] = field(default_factory=list)
    """Those of each class (n_c); empty for regression and in older files."""
    net_source: str | None = None
    """Digest of the source of a person's own network."""
    made: dict[str, Any] = field(default_factory=dict)
    """Devices and versions behind the `updates`, each from one on, and behind the `experts`."""

    def as_json(self) -> dict[str, Any]:
        """What files hold."""
        return asdict(self)

    @staticmethod
    def from_json(content: Any) -> "Provenance":
        """Read what `as_json` gave; raises TypeError on anything else.

        Args:
            content: what a file holds
        """
        texts = ("method", "net", "data", "data_fingerprint", "train_digest", "test_digest")
        kinds: dict[str, tuple[type, ...]] = dict.fromkeys(texts, (str,))
        kinds |= {"holdout": (int,), "seed": (int,), "num_train": (int, NoneType)}
        kinds |= {"config": (dict,), "experts": (list,), "versions": (dict,), "made": (dict,)}
        kinds |= {"net_source": (str, NoneType), "class_counts": (list,)}
        if not isinstance(content, dict):
            raise TypeError("its provenance is damaged")
        listed = [*content.get("experts", ()), *content.get("versions", {}).values()]
        good = all(type(value) in kinds.get(name, ()) for name, value in content.items())
        if not good or not all(isinstance(text, str) for text in listed):
            raise TypeError("its provenance is damaged")
        counts = content.get("class_counts", ())
        good = all(type(count) is int and count >= 0 for count in counts)
        if not good or (counts and sum(counts) != content.get("num_train")):
            raise TypeError("its numbers of training points are damaged")
        return Provenance(**content)


@dataclass(frozen=True, eq=False)
class Pseudocoreset:
    """Synthetic points with their targets.

    `inputs` are the stored points, already normalised. `seen_inputs` are the points that networks
    see; a mosaic has several of them for each stored point. Targets are classes, probabilities
    (one row for each seen point), or numbers for regression. `dsa` is the augmentation that the
    coreset was made with; sampling uses the same.
    """

    inputs: Float[Tensor, "m ..."]
    targets: Shaped[Tensor, "n ..."]
    class_names: tuple[str, ...]
    scaling: Scaling
    dsa: str
    provenance: Provenance
    form: Form = field(default_factory=Pixels)
    likelihood: Likelihood | None = None
    target_scaling: Scaling | None = None
    columns: tuple[Column, ...] = ()
    precision: str = "full"
    """The precision of the stored numbers: `full`, `half` or `byte`."""
    source: Path | None = None
    """The file it was read from. Code that the file names is not imported."""
    trust_code: bool = False

    def __post_init__(self) -> None:
        if self.likelihood is None:
            object.__setattr__(self, "likelihood", Categorical(len(self.class_names)))

    def __len__(self) -> int:
        """The number of stored points."""
        return len(self.inputs)

    def __repr__(self) -> str:
        made = self.provenance
        size = "×".join(map(str, self.inputs.shape[1:]))
        form = "" if self.form.seen == 1 else f", {self.form}"
        origin = f"{printable(made.method)} on {printable(made.data)}"
        return f"Pseudocoreset({len(self)} of {size}{form}, {origin})"

    def __eq__(self, other: object) -> bool:
        """Whether both have the same points. Their provenance is ignored."""
        if not isinstance(other, Pseudocoreset):
            return NotImplemented
        names = ("class_names", "scaling", "dsa", "form", "likelihood", "target_scaling", "columns")
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        pairs = ((self.inputs, other.inputs), (self.targets, other.targets))
        return same and all(a.shape == b.shape and torch.equal(a.cpu(), b.cpu()) for a, b in pairs)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def task(self) -> str:
        """`classification` or `regression`."""
        return "classification" if self.class_names else "regression"

    @property
    def is_image(self) -> bool:
        """Whether the points are images."""
        return self.inputs.ndim == 4

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of a point."""
        return tuple(self.inputs.shape[1:])

    @property
    def outputs(self) -> int:
        """The number of outputs a network must have."""
        assert self.likelihood is not None
        return self.likelihood.outputs

    @property
    def units(self) -> Units:
        """The units of inputs and targets."""
        return Units(*(getattr(self, name) for name in Units._fields))

    @property
    def ipc(self) -> int:
        """Stored points per class; for regression, the number of stored points."""
        return len(self) // max(len(self.class_names), 1)

    @property
    def seen_inputs(self) -> Float[Tensor, "n ..."]:
        """The points that networks see."""
        return self.form.decode(self.inputs)

    @property
    def seen_targets(self) -> Shaped[Tensor, "n ..."]:
        """Their targets."""
        if self.targets.is_floating_point():
            return self.targets
        return self.targets.repeat_interleave(self.form.seen)

    @property
    def num_seen(self) -> int:
        """The number of points that networks see (m)."""
        return len(self) * self.form.seen

    @property
    def stored_numbers(self) -> int:
        """The number of stored numbers: inputs and label values. A class is one number."""
        return self.inputs.numel() + self.targets.numel()

    @property
    def stored_bytes(self) -> int:
        """Their size in bytes in a file, without metadata."""
        narrow = self._soft and self.precision != "full"
        each = 2 if narrow else self.targets.element_size()
        return BYTES[self.precision] * self.inputs.numel() + each * self.targets.numel()

    @property
    def _soft(self) -> bool:
        """Whether targets are probabilities."""
        return bool(self.class_names) and self.targets.is_floating_point()

    def rounded(self, precision: str) -> "Pseudocoreset":
        """A copy rounded as if saved in this precision and loaded again.

        Args:
            precision: `full`, `half`, or `byte`: 0 to 255 between the lowest and the highest value
                of each channel
        """
        packed = Packed.of(self.inputs, self.targets, self._soft, check_precision(precision))
        inputs, targets = packed.unpacked(self._soft)
        return replace(self, inputs=inputs, targets=targets, precision=precision)

    @property
    def classes(self) -> Shaped[Tensor, " n"]:
        """The class of each seen point; for soft labels, the most probable one."""
        targets = self.seen_targets
        return targets if targets.ndim == 1 else targets.argmax(1)

    @property
    def images(self) -> Float[Tensor, "n c h w"]:
        """The images that networks see."""
        return self.seen_inputs

    @property
    def labels(self) -> Shaped[Tensor, "n ..."]:
        """Their labels."""
        return self.seen_targets

    @property
    def fingerprint(self) -> str:
        """A digest of the stored points."""
        digest = hashlib.blake2b(digest_size=16)
        for tensor in (self.inputs, self.targets):
            digest.update(tensor.cpu().contiguous().numpy().data)
        if self.form.seen > 1:
            digest.update(str(self.form).encode())
        return digest.hexdigest()

    def as_dataset(self) -> TensorDataset:
        """A PyTorch data set of (input, target), as networks see them."""
        return TensorDataset(self.seen_inputs, self.seen_targets)

    def to(self, device: torch.device) -> "Pseudocoreset":
        """A copy on another device.

        Args:
            device: the device
        """
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def make_net(self, net: NetLike | None = None) -> Net:
        """A network for these points.

        Args:
            net: a spec, a class or a factory; default: the network that the coreset was made with
        """
        shape: dict[str, Any] = {"input_shape": self.input_shape, "outputs": self.outputs}
        if net is not None:
            return make_net(net, **shape)
        made = self.provenance
        return make_stored_net(
            made.net,
            **shape,
            source=self.source,
            trust_code=self.trust_code,
            digest=made.net_source,
        )

    def to_pil(self) -> "list[Image]":
        """The images that networks see, as PIL images."""
        from pseudocoreset.coreset.pictures import pil_images

        return pil_images(self)

    def show(self) -> "Figure":
        """A figure of the points; in a notebook the coreset shows itself."""
        from pseudocoreset.coreset.pictures import coreset_figure

        return coreset_figure(self)

    def _repr_html_(self) -> str:
        from pseudocoreset.coreset.pictures import coreset_html

        return coreset_html(self)

    def export(self, to: str, out: Path | str) -> Path:
        """Write the points, as networks see them, for use in other programs.

        Args:
            to: `png` (a folder of images), `npz`, or `hf` (a Hugging Face data set folder)
            out: the folder or file to write, which must not exist yet
        """
        from pseudocoreset.coreset.export import export_coreset

        return export_coreset(self, to, Path(out))

    def save(self, path: Path | str, half: bool = False, *, precision: str | None = None) -> None:
        """Write a safetensors file.

        Args:
            path: the file
            half: the same as `precision="half"`
            precision: `full` (float32, the default), `half` (float16), or `byte` (0 to 255 between
                the lowest and the highest value of each channel); below full, probabilities are
                float16
        """
        precision = check_precision(precision or ("half" if half else "full"))
        plain = self.is_image and self.form.seen == 1 and self.task == "classification"
        plain = plain and precision != "byte"
        inputs_name = "images" if self.is_image else "inputs"
        targets_name = "labels" if self.class_names else "targets"
        metadata: dict[str, Any] = {
            "kind": KIND,
            "format": FORMATS[0] if plain else FORMATS[1],
            **self.units.as_json(),
            "image_size": self.inputs.shape[-1],
            "dsa": self.dsa,
            "provenance": self.provenance.as_json(),
            "form": str(self.form),
            "n": self.provenance.num_train,
            "digests": {
                "train": self.provenance.train_digest,
                "test": self.provenance.test_digest,
            },
        }
        inputs, targets, levels = Packed.of(self.inputs, self.targets, self._soft, precision)
        if levels is not None:
            metadata["levels"] = levels._asdict()
        write_tensors(Path(path), {inputs_name: inputs, targets_name: targets}, metadata)

    @staticmethod
    def load(
        path: Path | str, *, net: NetLike | None = None, trust_code: bool = False
    ) -> "Pseudocoreset":
        """Read a file written by `save`.

        Args:
            path: the file
            net: the network, needed if it is your own code
            trust_code: run code of your own that the file names
        """
        with open_tensors(Path(path), KIND) as (tensors, metadata):
            if metadata["format"] not in FORMATS:
                raise UserError(
                    f"{path} has format {printable(metadata['format'])} and this version reads "
                    f"up to {FORMATS[-1]}: install a newer version."
                )
            try:
                coreset = _read(tensors, metadata, Path(path), trust_code)
            except (ArithmeticError, AttributeError, RuntimeError) as error:
                raise ValueError(error) from None
        if net is not None:
            coreset.make_net(net)
        return coreset


def whole_data(data: Data, net: NetLike, likelihood: Likelihood | None = None) -> Pseudocoreset:
    """The whole training set as a coreset; its posterior is the one to match.

    Args:
        data: the data set
        net: the network to sample
        likelihood: the likelihood; for regression it must be given
    """
    network = make_net(net, **data.shape)
    provenance = Provenance(
        method="full data",
        net=network.spec,
        data=data.name,
        data_fingerprint=data.fingerprint,
        holdout=0 if data.holdout is None else len(data.holdout),
        seed=0,
        train_digest=data.train_digest,
        test_digest=data.test_digest,
        num_train=len(data.train),
        class_counts=data.train.class_counts(data.classes),
        net_source=network.source_digest,
    )
    targets = data.train.targets
    if data.target_scaling is not None:
        targets = data.target_scaling.apply(targets)
    return Pseudocoreset(
        data.scaling.apply(data.train.inputs),
        targets,
        data.class_names,
        data.scaling,
        str(Augmentation.parse("on" if data.is_image else "off", data.mirror)),
        provenance,
        likelihood=likelihood,
        target_scaling=data.target_scaling,
        columns=data.columns,
    )


def _read(tensors: Any, metadata: dict[str, Any], path: Path, trust_code: bool) -> Pseudocoreset:
    """The coreset that a file describes."""
    there = set(tensors.keys())
    inputs = tensors.get_tensor("images" if "images" in there else "inputs")
    targets = tensors.get_tensor("labels" if "labels" in there else "targets")
    if not isinstance(metadata["dsa"], str):
        raise TypeError("its augmentations are damaged")
    packed = Packed.read(inputs, targets, metadata)
    inputs, targets = packed.unpacked(soft="labels" in there)
    coreset = Pseudocoreset(
        inputs,
        targets,
        **Units.from_json(metadata)._asdict(),
        dsa=metadata["dsa"],
        provenance=Provenance.from_json(metadata["provenance"]),
        form=parse_form(metadata.get("form", "pixels")),
        precision=packed.precision,
        source=path,
        trust_code=trust_code,
    )
    _check_inputs(coreset)
    _check_targets(coreset)
    return coreset


def _check_inputs(coreset: Pseudocoreset) -> None:
    """Raise ValueError for inputs that do not fit what the file says of them."""
    inputs, scaling = coreset.inputs, coreset.scaling
    if inputs.ndim not in (2, 4) or not inputs.numel() or not bool(inputs.isfinite().all()):
        raise ValueError("its inputs are damaged")
    coreset.form.check(coreset.input_shape)
    good = len(scaling.mean) == inputs.shape[1]
    if coreset.columns:
        width = sum(column.width for column in coreset.columns)
        good = good and inputs.ndim == 2 and width == inputs.shape[1]
    if not good:
        raise ValueError("its inputs do not fit what it says of them")


def _check_targets(coreset: Pseudocoreset) -> None:
    """The same for the targets."""
    targets, classes = coreset.targets, len(coreset.class_names)
    good = isinstance(coreset.likelihood, Categorical) == bool(classes)
    good = good and (not classes or classes == coreset.outputs)
    if targets.is_floating_point():
        good = good and tuple(targets.shape) == (coreset.num_seen, coreset.outputs)
        good = good and bool(targets.isfinite().all())
        if classes:  # probabilities
            good = good and bool((targets >= 0).all())
            good = good and bool(((targets.sum(1) - 1).abs() < 1e-2).all())
    else:
        good = good and targets.dtype == torch.int64 and tuple(targets.shape) == (len(coreset),)
        good = good and bool(((targets >= 0) & (targets < classes)).all())
    counts, units = coreset.provenance.class_counts, coreset.target_scaling
    good = good and len(counts) in (0, classes)
    if units is not None:
        good = good and not classes and len(units.mean) == coreset.outputs
    if not good:
        raise ValueError("its targets do not fit what it says of them")
