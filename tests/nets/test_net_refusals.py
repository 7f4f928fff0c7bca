"""Names and shapes that no network takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from pseudocoreset.engine.text import printable
from pseudocoreset.errors import UserError
from pseudocoreset.nets import NET_NAMES, make_net
from pseudocoreset.nets.make import _checked_factory, _checked_shape

IMAGE = (3, 32, 32)


@pytest.mark.parametrize(
    "spec",
    [
        "transformer",
        "",
        ":",
        "my.module:",
        "my..module:net",
        "my.module:net()",
        "../net.py:make",
        "convnet:",
        "convnet:depth",
        "convnet:depth=",
        "convnet:depth=2,depth=3",
        "convnet:unheard=2",
        "lenet:norm=batch",
        "alexnet:depth=2",
        "vgg11:depth=2,width=3",
        "resnet18:width=2",
        "convnet:depth=0",
        "convnet:width=-4",
        "convnet:width=1.5",
        "convnet:width=²",
        "convnet:norm=weight",
        "resnet34:norm=batch,stats=some",
        "convnet:stats=kept",
        "convnet:width=6,norm=group",
        "mlp:depth=101",
        "mlp:norm=batch",
    ],
)
@pytest.mark.parametrize("source", [None, "coreset.safetensors"])
def test_a_bad_spec_is_refused_in_one_sentence(spec, source):
    with pytest.raises(UserError) as caught:
        make_net(spec, input_shape=IMAGE, outputs=10, source=source)
    assert caught.value.parameter == "net"
    assert "\n" not in str(caught.value)


@given(st.text(st.characters(exclude_categories=())) | st.text("convnetmlp:.=,depth<>\x1b\n"))
def test_any_text_of_a_file_is_made_or_refused(text):
    refusal = None
    try:
        make_net(text, input_shape=(3,), outputs=2, source="file")
    except UserError as error:
        refusal = error
    if refusal is not None:
        assert refusal.parameter == "net"
        assert printable(refusal, longest=1000) == str(refusal)


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("ConvNet", "convnet"),
        ("convnte:depth=3", "convnet"),
        ("resnet-18", "resnet18"),
        ("convnet:dept=2", "depth"),
        ("vgg11:nrom=batch", "norm"),
        ("mlp:widht=3", "width"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(spec, meant):
    with pytest.raises(UserError) as caught:
        make_net(spec, input_shape=IMAGE, outputs=10)
    assert str(caught.value).endswith(f"did you mean {meant}?")


@pytest.mark.parametrize(
    ("spec", "channels", "size"),
    [
        ("convnet", 1, 7),
        ("convnet", 1, 65),
        ("lenet", 1, 27),
        ("resnet18", 1, 8),
        ("alexnet", 2, 32),
        ("convnet:depth=4", 1, 8),
        ("convnet:depth=4,norm=none", 1, 8),
        ("convnet:depth=6", 3, 28),
        ("vgg11", 3, 30),
        ("vgg11:norm=group", 3, 31),
    ],
)
def test_images_that_a_network_cannot_take_are_refused(spec, channels, size):
    with pytest.raises(UserError) as caught:
        make_net(spec, input_shape=(channels, size, size), outputs=10)
    assert caught.value.parameter == "net"
    assert spec.partition(":")[0] in str(caught.value)


@pytest.mark.parametrize("name", [name for name in NET_NAMES if name != "mlp"])
def test_image_networks_refuse_tables_and_name_mlp(name):
    with pytest.raises(UserError, match="mlp") as caught:
        make_net(name, input_shape=(8,), outputs=2)
    assert caught.value.parameter == "net"


@pytest.mark.parametrize(("depth", "size"), [(3, 8), (3, 15), (4, 16), (5, 28), (5, 32), (6, 64)])
def test_the_deepest_convnet_that_the_refusal_names_is_taken(depth, size):
    make_net(f"convnet:depth={depth}", input_shape=(1, size, size), outputs=10)
    with pytest.raises(UserError, match=f"at most {depth}, not {depth + 1}"):
        make_net(f"convnet:depth={depth + 1}", input_shape=(1, size, size), outputs=10)


@pytest.mark.parametrize(
    ("shape", "outputs", "parameter"),
    [
        ((), 2, "input_shape"),
        ((0,), 2, "input_shape"),
        ((3, 8), 2, "input_shape"),
        ((3, 8, 9), 2, "input_shape"),
        ((3, -8, -8), 2, "input_shape"),
        ((3,), 0, "outputs"),
    ],
)
def test_impossible_shapes_are_refused_by_parameter(shape, outputs, parameter):
    with pytest.raises(UserError) as caught:
        _checked_shape(shape, outputs)
    assert caught.value.parameter == parameter


@pytest.mark.parametrize("net", [5, None, ["convnet"], nn.Linear(2, 2)])
def test_what_builds_no_network_is_refused(net):
    with pytest.raises(UserError) as caught:
        _checked_factory(net)
    assert caught.value.parameter == "net"
