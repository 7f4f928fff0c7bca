"""The class `Posterior`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from pseudocoreset.coreset import Provenance
from pseudocoreset.coreset.metadata import Units
from pseudocoreset.data import Column, Scaling
from pseudocoreset.engine.device import DeviceLike, choose_device
from pseudocoreset.engine.files import open_tensors, write_tensors
from pseudocoreset.engine.progress import Task
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.likelihoods import (
    Categorical,
    Likelihood,
    Prediction,
    RegressionPrediction,
)
from pseudocoreset.nets import Net, NetLike, Weights, make_net, make_stored_net
from pseudocoreset.posterior.inputs import as_inputs, read_blocks
from pseudocoreset.predictor import Predictor

FORMATS = (1, 2)
"""Format 1 has images with classes. Format 2 has everything else."""
KIND = "a posterior"
LARGEST_SIDE = 4096
"""The largest side of images that a file may ask for."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """Samples of a posterior: weights of a network. `predict` averages over them."""

    net: str
    params: Float[Tensor, "s p"]
    buffers: Float[Tensor, "s q"]
    class_names: tuple[str, ...]
    scaling: Scaling
    input_shape: tuple[int, ...]
    details: dict[str, Any]
    """Protocol, seed, the coreset's fingerprint, versions, and diagnostics of the sampling."""
    likelihood: Likelihood | None = None
    target_scaling: Scaling | None = None
    columns: tuple[Column, ...] = ()
    network: Net | None = field(default=None, repr=False)
    """The network itself, if it was made in this process."""
    source: Path | None = None
    trust_code: bool = False

    def __post_init__(self) -> None:
        if self.likelihood is None:
            object.__setattr__(self, "likelihood", Categorical(len(self.class_names)))

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.params)

    def __repr__(self) -> str:
        protocol = self.details["protocol"]
        chains = printable(protocol.get("chains", 1))
        of = f"{chains} chain{'s' if chains != '1' else ''} of {printable(protocol.get('sampler'))}"
        return f"Posterior({len(self)} samples of {printable(self.net)}, {of})"

    @property
    def task(self) -> str:
        """`classification` or `regression`."""
        return "classification" if self.class_names else "regression"

    @property
    def chains(self) -> int:
        """The number of chains. Samples are ordered by chain. Networks of an ensemble are chains of
        one sample. 1 if the chains are not known.
        """
        chains = len(self.details["loss_trace"])
        return chains if chains and len(self) % chains == 0 else 1

    def make_net(self) -> Net:
        """The network."""
        assert self.likelihood is not None
        net = self.network or make_stored_net(
            self.net,
            input_shape=self.input_shape,
            outputs=self.likelihood.outputs,
            source=self.source,
            trust_code=self.trust_code,
            digest=self.details.get("net_source"),
        )
        net.refuse_other_weights("the posterior", (self.params.shape[1], self.buffers.shape[1]))
        return net

    def samples(self) -> Iterator[Weights]:
        """The weights of each sample."""
        for params, buffers in zip(self.params, self.buffers, strict=True):
            yield Weights(params, buffers)

    def predict(
        self,
        x: Any,
        *,
        scaled: bool = False,
        normalised: bool = False,
        samples: bool = False,
        device: DeviceLike = "auto",
    ) -> Prediction | RegressionPrediction:
        """Predict and return the uncertainty.

        Args:
            x: images as bytes (a tensor or an array), PIL images, or paths of image files, folders
                or .npz files; for tables, rows of numbers or the path of a CSV file
            scaled: images are floats in [0, 1]
            normalised: inputs are already normalised
            samples: also keep the prediction of each sample
            device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        """
        inputs = as_inputs(
            x, self.input_shape, self.scaling, self.columns, scaled=scaled, normalised=normalised
        )
        raw = not inputs.is_floating_point() or (len(self.input_shape) == 1 and not normalised)
        here = inputs.to(choose_device(device))
        outputs = self.outputs(here, scaling=self.scaling if raw else None)
        found = self._predicted(outputs, samples)
        return found.to(x.device if isinstance(x, Tensor) else torch.device("cpu"))

    __call__ = predict

    def predict_files(
        self, paths: Sequence[Path], *, device: DeviceLike = "auto"
    ) -> Iterator[tuple[list[str], Prediction | RegressionPrediction]]:
        """Predict files block by block: yields the names and the predictions of each block.

        Args:
            paths: image files, folders, .npz files, or CSV files
            device: `auto`, `cpu`, `cuda`, `cuda:1` or a `torch.device`
        """
        place, first = choose_device(device), None
        for names, inputs in read_blocks(paths, self.input_shape, self.columns):
            here = inputs.to(place)
            first = first or Predictor(self.make_net(), here, self.scaling)
            predictor = first.at(here)  # what the first has captured is used again
            outputs = self.outputs(here, scaling=self.scaling, predictor=predictor)
            yield names, self._predicted(outputs).to(torch.device("cpu"))

    def _predicted(
        self, outputs: Float[Tensor, "s n k"], samples: bool = False
    ) -> Prediction | RegressionPrediction:
        """What these outputs predict, in the targets' own units."""
        assert self.likelihood is not None
        found = self.likelihood.predict(outputs, keep_samples=samples)
        if isinstance(found, RegressionPrediction) and self.target_scaling is not None:
            found = found.unscaled(self.target_scaling)
        return found

    def outputs(
        self,
        inputs: Shaped[Tensor, "n ..."],
        *,
        scaling: Scaling | None,
        predictor: Predictor | None = None,
        task: Task | None = None,
    ) -> Float[Tensor, "s n k"]:
        """The outputs of each sample's network.

        Args:
            inputs: the points
            scaling: how inputs are normalised; None if they already are
            predictor: a predictor for the same network and points, to save time
            task: progress task, updated after each sample
        """
        predictor = predictor or Predictor(self.make_net(), inputs, scaling)
        found = []
        for weights in self.samples():
            found.append(predictor.outputs(weights))
            if task is not None:
                task.advance()
        outputs = torch.stack(found)
        if not bool(outputs.isfinite().all()):
            raise UserError(
                f"networks of {self.source or 'the posterior'} give NaN or infinity at these "
                "inputs: sample it again."
            )
        return outputs

    def save(self, path: Path | str, half: bool = False) -> None:
        """Write a safetensors file.

        Args:
            path: the file
            half: store the weights as float16
        """
        plain = len(self.input_shape) == 3 and self.task == "classification"
        metadata: dict[str, Any] = {
            "kind": KIND,
            "format": FORMATS[0] if plain else FORMATS[1],
            "net": self.net,
            **Units(*(getattr(self, name) for name in Units._fields)).as_json(),
            "image_size": self.input_shape[-1],
            "input_shape": self.input_shape,
            "details": self.details,
        }
        params = self.params.half() if half else self.params
        if not bool(params.isfinite().all()):
            raise UserError("a weight is too large for `half` precision: leave it out.", "half")
        write_tensors(Path(path), {"params": params, "buffers": self.buffers}, metadata)

    @staticmethod
    def load(
        path: Path | str, *, net: NetLike | None = None, trust_code: bool = False
    ) -> "Posterior":
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
                    f"{FORMATS[-1]}: sample the posterior again."
                )
            units, side = Units.from_json(metadata), metadata["image_size"]
            shape = metadata.get("input_shape") or (len(units.scaling.mean), side, side)
            posterior = Posterior(
                str(metadata["net"]),
                tensors.get_tensor("params").float(),
                tensors.get_tensor("buffers").float(),
                **units._asdict(),
                input_shape=tuple(map(int, shape)),
                details=_details(metadata["details"]),
                source=Path(path),
                trust_code=trust_code,
            )
            _check(posterior)
        if net is not None:
            assert posterior.likelihood is not None
            outputs = posterior.likelihood.outputs
            spec = make_net(net, input_shape=posterior.input_shape, outputs=outputs).spec
            if spec != posterior.net:
                raise UserError(
                    f"{path} holds samples of {printable(posterior.net)}, not of {spec}.", "net"
                )
        return posterior


def _details(content: Any) -> dict[str, Any]:
    """Raise TypeError for details that are not those of a posterior."""
    kinds: dict[str, type | tuple[type, ...]] = {
        **dict.fromkeys(("protocol", "versions"), dict),
        **dict.fromkeys(("temperature", "decay"), (int, float)),
        **dict.fromkeys(("loss_trace", "kinetic_temperature"), list),
        "seed": int,
        "coreset": str,
    }
    if not isinstance(content, dict):
        raise TypeError("its details are damaged")
    good = all(isinstance(content[name], kind) for name, kind in kinds.items())
    good = good and all(isinstance(t, int | float) for t in content["kinetic_temperature"])
    if not good or not isinstance(content.get("coreset_points", {}), dict):
        raise TypeError("its details are damaged")
    if content.get("coreset_provenance") is not None:
        Provenance.from_json(content["coreset_provenance"])
    return content


def _check(posterior: Posterior) -> None:
    """Raise ValueError for samples that do not fit what the file says of them."""
    weights, shape = (posterior.params, posterior.buffers), posterior.input_shape
    if {part.ndim for part in weights} != {2} or len({len(part) for part in weights}) > 1:
        raise ValueError("its weights are damaged")
    if not len(posterior) or not all(bool(part.isfinite().all()) for part in weights):
        raise ValueError("its weights are damaged")
    assert posterior.likelihood is not None
    classes, outputs = len(posterior.class_names), posterior.likelihood.outputs
    good = len(shape) in (1, 3) and len(posterior.scaling.mean) == shape[0]
    good = good and all(1 <= side <= LARGEST_SIDE for side in shape[1:])
    good = good and isinstance(posterior.likelihood, Categorical) == bool(classes)
    good = good and (not classes or classes == outputs)
    if posterior.columns:
        good = good and (sum(column.width for column in posterior.columns),) == shape
    if posterior.target_scaling is not None:
        good = good and not classes and len(posterior.target_scaling.mean) == outputs
    if not good:
        raise ValueError("its samples do not fit what it says of them")
