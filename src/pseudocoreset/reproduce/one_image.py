"""Outputs of sampled networks at one image of the coreset."""

import base64
import io
from typing import Any

from pseudocoreset.coreset import Pseudocoreset
from pseudocoreset.posterior import Posterior

SHOWN_CLASS = "dog"
"""The class of the image, where the data have it; else the first."""


def outputs_at_one_image(coreset: Pseudocoreset, posterior: Posterior) -> dict[str, Any]:
    """Mean and deviation over samples of each output at the first image of a class."""
    names = coreset.class_names
    wanted = names.index(SHOWN_CLASS) if SHOWN_CLASS in names else 0
    place = int((coreset.classes == wanted).nonzero()[0])
    inputs = coreset.seen_inputs.to(posterior.params.device)
    outputs = posterior.outputs(inputs, scaling=None)[:, place]  # batch norms look at all of them
    png = io.BytesIO()
    coreset.to_pil()[place].save(png, "png")
    return {
        "class": names[wanted],
        "classes": list(names),
        "place": place,
        "png": base64.b64encode(png.getvalue()).decode("ascii"),
        "mean": outputs.mean(0).tolist(),
        "std": outputs.std(0, correction=0).tolist(),
    }
