"""Files of a run that only its page needs: scores, test images, data options.

`evaluation.json` holds the scores, `examples.safetensors` the test images that they name, and
`data.json` how the command line named the data.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from jaxtyping import UInt8

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.data import Split
from pseudocoreset.engine.files import open_tensors, write_json, write_tensors
from pseudocoreset.engine.parse import read_json
from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError

KIND = "examples of test images"
EXAMPLES = "examples.safetensors"
DATA = "data.json"
DATA_OPTIONS = ("data", "image_size", "holdout", "target", "task")


def keep_evaluation(folder: Path, content: Mapping[str, Any], points: Split) -> None:
    """Keep scores in a run's folder, and the images that they name.

    The images go first: scores without their images are shown without them.

    Args:
        folder: the run's folder
        content: what `Evaluation.as_json` gives
        points: the points that were scored
    """
    if points.inputs.ndim == 4:
        kinds = content["examples"].values()
        index = sorted({one["index"] for examples in kinds for one in examples})
        tensors = {"index": torch.tensor(index), "inputs": points.inputs.cpu()[index]}
        write_tensors(
            folder / EXAMPLES,
            tensors,
            {"kind": KIND, "coreset": content["coreset"].get("fingerprint")},
        )
    write_json(folder / "evaluation.json", content)


def read_images(
    folder: Path, coreset: Pseudocoreset | None
) -> dict[int, UInt8[numpy.ndarray, "c h w"]]:
    """The test images that were kept with the scores of this coreset, by index.

    Args:
        folder: the run's folder
        coreset: its coreset
    """
    path = folder / EXAMPLES
    if coreset is None or not coreset.is_image or not path.exists():
        return {}
    try:
        with open_tensors(path, KIND) as (tensors, metadata):
            index, inputs = tensors.get_tensor("index"), tensors.get_tensor("inputs")
            good = index.dtype == torch.int64 and index.ndim == 1 and inputs.dtype == torch.uint8
            if not good or tuple(inputs.shape) != (len(index), *coreset.input_shape):
                raise ValueError("its images are damaged")
            if metadata.get("coreset") != coreset.fingerprint:  # of another coreset's scores
                return {}
    except UserError:  # they are only shown: a page without them is better than none
        return {}
    return dict(zip(index.tolist(), inputs.numpy(), strict=True))


def keep_data_options(folder: Path, options: Mapping[str, Any]) -> None:
    """Keep how the command line named the data, with whole paths.

    Args:
        folder: the run's folder
        options: the options by name
    """
    kept = {name: options[name] for name in DATA_OPTIONS if options.get(name)}
    kind, colon, place = str(kept.get("data", "")).partition(":")
    if colon:
        kept["data"] = f"{kind}:{Path(place).expanduser().resolve()}"
    write_json(folder / DATA, kept)


def read_data_options(folder: Path) -> dict[str, Any]:
    """The same again; empty where they are not known.

    Args:
        folder: the run's folder
    """
    path = folder / DATA
    if not path.exists():
        return {}
    try:
        found = read_json(path)
    except PermissionError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be read ({printable(error)}): remove it.") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} does not hold options: remove it.")
    kinds = {"image_size": int, "holdout": int}
    return {
        name: found[name] for name in DATA_OPTIONS if type(found.get(name)) is kinds.get(name, str)
    }
