"""Every annotated shape and type of the package is checked while the tests run."""

import torch
from jaxtyping import install_import_hook

install_import_hook("pseudocoreset", "beartype.beartype")

torch.set_num_threads(2)
