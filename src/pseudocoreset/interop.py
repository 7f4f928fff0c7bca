"""Read coresets and expert trajectories of other programs."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from pseudocoreset.augment import Augmentation
from pseudocoreset.coreset import Provenance, Pseudocoreset
from pseudocoreset.data import Data
from pseudocoreset.data.assemble import refuse_bomb
from pseudocoreset.data.npz import channels_first, read_arrays
from pseudocoreset.errors import UserError
from pseudocoreset.experts import ExpertOptions, ExpertStore
from pseudocoreset.experts.train import identify
from pseudocoreset.nets import DEFAULT_NET, Net, NetLike, Weights, make_net

IMAGES, LABELS = "images_best.pt", "labels_best.pt"


def read_coreset(
    path: Path, data: Data, net: NetLike | None = None, *, trust_code: bool = False
) -> Pseudocoreset:
    """Read a file of ours, a run, an npz of `images` and `labels`, or a folder with images_best.pt.

    Files of other programs do not state how they were normalised: bytes are normalised as `data`,
    floats are assumed to be normalised.

    Args:
        path: the file or folder
        data: the data set it was made of
        net: the network, for sets of other programs
        trust_code: run code of your own that the file names
    """
    if (path / "coreset.safetensors").is_file():
        path = path / "coreset.safetensors"
    if path.suffix == ".safetensors":
        return Pseudocoreset.load(path, trust_code=trust_code)
    if not data.is_image and path.exists():
        raise UserError(
            f"{path} is not a coreset of {data.name}, which is a table: give a .safetensors file."
        )
    as_bytes = False
    if path.suffix == ".npz":
        if not path.is_file():
            raise UserError(f"{path} does not exist: give an .npz with images and labels.")
        arrays = read_arrays(path, ("images", "labels"))
        images, labels = (_plain_tensor(path, name, arrays[name]) for name in ("images", "labels"))
        as_bytes = images.dtype == torch.uint8
        if as_bytes:
            square = channels_first(path, "images", arrays["images"])
            images = data.scaling.apply(torch.from_numpy(square.copy()))
    elif (path / IMAGES).exists() or path.name == IMAGES:
        folder = path if path.is_dir() else path.parent
        images, labels = (_tensors(folder / name) for name in (IMAGES, LABELS))
        if isinstance(images, Tensor) and isinstance(labels, Tensor):
            images, labels = images.detach(), labels.detach()
    elif not path.exists():
        raise UserError(f"{path} does not exist: give the path of a coreset.")
    else:
        raise UserError(
            f"{path} is not a coreset: give a .safetensors file, an .npz with images and labels, "
            "or "
            f"a folder with {IMAGES} and {LABELS}."
        )
    _check(path, images, labels, data)
    if not as_bytes and bool((images >= 0).all()):
        warnings.warn(
            f"{path}: no value of the images is below 0, so they do not seem to be normalised: "
            "subtract the data's mean and divide by the standard deviation, or save bytes in an "
            ".npz.",
            RuntimeWarning,
            stacklevel=2,
        )
    provenance = Provenance(
        method=f"foreign: {path.name}",
        net=make_net(net or DEFAULT_NET, **data.shape).spec,
        data=data.name,
        data_fingerprint="",  # of what data, nobody knows
        holdout=0,
        seed=0,
    )
    if not labels.is_floating_point():
        labels = labels.long()
    dsa = str(Augmentation.parse("on", data.mirror))
    return Pseudocoreset(images.float(), labels, data.class_names, data.scaling, dsa, provenance)


def _plain_tensor(path: Path, name: str, array: npt.NDArray[Any]) -> Tensor:
    """An array of numbers as a tensor, whatever its width and the order of its bytes."""
    if array.dtype.kind not in "iuf":
        raise UserError(f"{path}: {name!r} holds {array.dtype}, not numbers: save numbers.")
    if array.dtype != np.uint8:
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
    return torch.from_numpy(array)


def _check(path: Path, images: Any, labels: Any, data: Data) -> None:
    expected = data.input_shape
    dense = [isinstance(t, Tensor) and t.layout == torch.strided for t in (images, labels)]
    if not all(dense) or images.ndim != 4 or not images.is_floating_point():
        raise UserError(
            f"{path}: expected images as floats of m×c×h×w, or bytes in an npz: save them so."
        )
    if tuple(images.shape[1:]) != expected:
        raise UserError(
            f"{path}: the images are {tuple(images.shape[1:])} and those of {data.name} are "
            f"{expected}: give the data they were made of."
        )
    if not len(images):
        raise UserError(f"{path} holds no images: give a set that has some.")
    _check_labels(path, labels, len(images), data.classes)
    if not bool(images.isfinite().all()):
        raise UserError(f"{path}: the images hold NaN or infinity: make the set again.")


def _check_labels(path: Path, labels: Shaped[Tensor, "..."], number: int, classes: int) -> None:
    if labels.is_floating_point():
        good = tuple(labels.shape) == (number, classes) and bool((labels >= 0).all())
        good = good and torch.allclose(
            labels.sum(1), torch.ones(number, dtype=labels.dtype), atol=1e-3
        )
    else:
        good = tuple(labels.shape) == (number,) and bool(((labels >= 0) & (labels < classes)).all())
    if not good:
        raise UserError(
            f"{path}: expected {number} labels, classes 0 to {classes - 1} or rows of {classes} "
            "probabilities: give the labels of these images."
        )


def _tensors(path: Path) -> Any:
    """What a .pt file holds, if that is tensors and lists of them and nothing else."""
    try:
        if is_zipfile(path):
            with ZipFile(path) as archive:
                inside = sum(member.file_size for member in archive.infolist())
            refuse_bomb(path, inside, path.stat().st_size)
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: put it beside the other file.") from None
    except (UserError, PermissionError):
        raise
    except Exception as error:  # on damaged bytes PyTorch raises nearly anything
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{path} can't be read as tensors and nothing else ({first}): get or save it again."
        ) from None


def import_replay_buffers(
    path: Path, data: Data, net: NetLike, out: Path, settings: ExpertOptions, seed: int
) -> ExpertStore:
    """Turn `replay_buffer_*.pt` files of trajectory matching into an expert store.

    A buffer is a list of trajectories, each a list of snapshots, each a list of the parameters in
    the network's own order. `settings` say how they were trained, except for what the files show.
    """
    files = [path] if path.is_file() else sorted(path.glob("replay_buffer_*.pt"))
    if not files:
        raise UserError(f"{path} holds no replay_buffer_*.pt: give a folder that holds them.")
    network = make_net(net, **data.shape)
    store, number = None, 0
    for file in files:  # one at a time: each may hold gigabytes
        for trajectory in _trajectories(file):
            if store is None:
                settings = replace(settings, epochs=len(trajectory) - 1, from_epoch=0)
                store = ExpertStore.create(
                    out, identify(data, network, settings, seed), network.source_digest
                )
                _refuse_trained(store)
            if len(trajectory) != store.last_epoch + 1:
                raise UserError(
                    f"{file}: a trajectory has {len(trajectory)} snapshots and the first one had "
                    f"{store.last_epoch + 1}: give buffers of one length."
                )
            snapshots = [_snapshot(file, network, snapshot) for snapshot in trajectory]
            store.write(number, snapshots, {"imported_from": file.name}, network)
            number += 1
    assert store is not None  # every file holds a trajectory
    return store


def _refuse_trained(store: ExpertStore) -> None:
    for path in store.trajectories:
        if "imported_from" not in store.describe(path):
            raise UserError(
                f"{store.path} holds experts that were trained: give another `out`.", "out"
            )


def _trajectories(file: Path) -> list[list[Any]]:
    content = _tensors(file)
    good = isinstance(content, list) and content
    if not good or not all(isinstance(one, list) and one for one in content):
        raise UserError(f"{file}: expected a list of trajectories: give a replay buffer.")
    return content  # type: ignore[no-any-return]


def _snapshot(file: Path, net: Net, tensors: Any) -> Weights:
    expected = net.unflatten(torch.zeros(net.num_params))
    shapes = [tuple(tensor.shape) for tensor in expected.values()]
    listed = isinstance(tensors, list) and all(isinstance(t, Tensor) for t in tensors)
    found = [tuple(t.shape) for t in tensors] if listed else None
    if found != shapes:
        raise UserError(
            f"{file}: a snapshot's tensors are not the parameters of {net.spec}: give the network "
            "that the buffer was trained with."
        )
    params: Float[Tensor, " p"] = net.flatten(dict(zip(expected, tensors, strict=True)))
    if not bool(params.isfinite().all()):
        raise UserError(f"{file}: a snapshot holds NaN or infinity: train these networks again.")
    return Weights(params.float(), net.init(torch.Generator().manual_seed(0)).buffers)
