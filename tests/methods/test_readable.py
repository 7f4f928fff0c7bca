"""The methods' code says what is computed; how it is made fast is the engine's."""

import re
from pathlib import Path

import pytest

from pseudocoreset import methods

MACHINERY = re.compile(
    r"dtype|b?float(16|32|64)|\.(half|float|double)\(|autocast|training_precision"
    r"|fastest_convolutions|memory_format|channels_last|CUDAGraph|\.replay\(|triton|pseudocoreset\.kernels"
    r"|torch\.(cuda|compile|backends|_dynamo|_inductor)|device\.type"
)
FILES = sorted(Path(methods.__file__).parent.glob("*.py"))


@pytest.mark.parametrize(
    "line",
    [
        "images.to(torch.bfloat16)",
        "images.half()",
        "images.to(memory_format=torch.channels_last)",
        "with training_precision(device):",
        "torch.compile(loss)",
        "torch.backends.cudnn.benchmark = True",
        'if device.type == "cuda":',
        "graph.replay()",
        "from pseudocoreset.kernels.norm_relu_pool import norm_relu_pool",
    ],
)
def test_machinery_is_known_where_it_is_seen(line):
    assert MACHINERY.search(line)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_capture_no_kernel_no_dtype(path):
    assert not MACHINERY.search(path.read_text(encoding="utf-8"))
