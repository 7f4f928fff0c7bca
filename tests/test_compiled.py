"""What a captured step calls can be compiled whole, and gives the same."""

import subprocess
import sys

# A process of its own, since the tests' checks of types can't be compiled; one for all parts,
# since the compiler takes seconds to import. aot_eager traces as the default compiler does,
# without a C++ build.
COMPILED = """
import torch
from pseudocoreset.forms import Chroma, Mosaic
from pseudocoreset.likelihoods import Categorical, Gaussian
from pseudocoreset.nets import make_net


def compiled(function):
    return torch.compile(function, fullgraph=True, backend="aot_eager")


def train():
    for spec in ("convnet:width=8", "convnet:width=8,norm=batch,stats=kept", "mlp"):
        net = make_net(spec, input_shape=(3, 16, 16), outputs=4)
        weights = net.init(torch.Generator().manual_seed(0))
        images = torch.randn(2, 3, 16, 16)
        for got, expected in zip(compiled(net.train)(weights, images), net.train(weights, images)):
            torch.testing.assert_close(got, expected)


def losses():
    outputs, numbers = torch.randn(5, 3), torch.randn(5, 3)
    cases = ((Categorical(3), torch.arange(5) % 3), (Categorical(3), numbers.softmax(1)),
             (Gaussian(3, 0.5), numbers))
    for likelihood, targets in cases:
        for name in ("loss", "losses", "progress_figure"):
            function = getattr(likelihood, name)
            found = compiled(function)(outputs, targets)
            torch.testing.assert_close(found, function(outputs, targets))
            # On the meta device any look at a value is an error.
            function(outputs.to("meta"), targets.to("meta"))


def decode():
    stored = torch.randn(3, 3, 8, 8)
    for form in (Mosaic(2), Chroma(2)):
        torch.testing.assert_close(compiled(form.decode)(stored), form.decode(stored))
        with torch.no_grad():
            assert not form.pull_back(form.decode(stored), stored).requires_grad


train()
losses()
decode()
"""


def test_steps_losses_and_forms_compile_whole():
    subprocess.run([sys.executable, "-c", COMPILED], check=True, timeout=240)
