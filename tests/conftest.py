"""Every annotated shape and type of the package is checked while the tests run."""

import torch
from jaxtyping import install_import_hook

install_import_hook("pseudocoreset", "typechecker.check")

# The tests run side by side; threads that wait for one another would only slow them down.
torch.set_num_threads(1)
