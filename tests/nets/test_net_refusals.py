import pytest

from pseudocoreset.errors import UserError
from pseudocoreset.nets import make_net


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("transformer", "no network is called 'transformer'; use convnet, lenet, alexnet, vgg11,"),
        ("", "no network is called ''"),
        ("ConvNet", "no network is called 'ConvNet'"),
        ("convnets:depth=3", "no network is called 'convnets:depth=3'"),
        ("my.module:", "no network is called 'my.module:'"),
        ("convnet:", "'' where one option=value was expected"),
        ("convnet:depth", "'depth' where one option=value was expected"),
        ("convnet:depth=", "'depth=' where one option=value was expected"),
        ("convnet:depth=2,depth=3", "'depth=3' where one option=value was expected, each option"),
        ("convnet:dept=2", "convnet has no option dept"),
        ("lenet:norm=batch", "lenet has no option norm"),
        ("alexnet:depth=2", "alexnet has no option depth"),
        ("vgg11:depth=2,width=3", "vgg11 has no option depth, width"),
        ("resnet18:width=2", "resnet18 has no option width"),
        ("convnet:depth=0", "depth=0 is not a whole number from 1 to 99999; write it like depth=3"),
        ("convnet:width=-4", "width=-4 is not a whole number"),
        ("convnet:width=1.5", "width=1.5 is not a whole number"),
        ("convnet:norm=weight", "norm=weight is unknown; use one of instance, group, layer, batch"),
        ("resnet34:norm=batch,stats=some", "stats=some is unknown; use one of batch, kept"),
        ("convnet:stats=kept", "stats belongs to norm=batch and the norm is instance"),
        ("convnet:width=6,norm=group", "norm=group needs a width that 4 divides and got 6; choose"),
    ],
)
def test_a_bad_spec_is_refused_in_one_sentence(spec, words):
    with pytest.raises(UserError) as caught:
        make_net(spec, channels=3, image_size=32, classes=10)
    message = str(caught.value)
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("spec", "channels", "size", "words"),
    [
        ("convnet", 1, 7, "convnet takes images from 8×8 to 64×64 and got 7×7; resize"),
        ("convnet", 1, 65, "convnet takes images from 8×8 to 64×64 and got 65×65"),
        ("lenet", 1, 27, "lenet takes images from 28×28 to 64×64 and got 27×27"),
        ("resnet18", 1, 8, "resnet18 takes images from 28×28 to 64×64 and got 8×8"),
        ("alexnet", 2, 32, "alexnet takes images of 1 or 3 channels and got 2; convert"),
        ("convnet:depth=4", 1, 8, "instance norm on 1×1 feature maps keeps nothing but its bias"),
        ("convnet:depth=4", 1, 8, "convnet at 8×8 takes a depth of at most 3, not 4: use fewer"),
        ("convnet:depth=6", 3, 28, "convnet at 28×28 takes a depth of at most 5, not 6"),
        ("convnet:depth=4,norm=none", 1, 8, "2×2 pooling leaves nothing of a 1×1 feature map"),
        ("convnet:depth=4,norm=none", 1, 8, "takes a depth of at most 3, not 4"),
        ("vgg11", 3, 30, "instance norm on 1×1 feature maps"),
        ("vgg11:norm=group", 3, 31, "vgg11 cannot take 31×31 images: use another network, or"),
    ],
)
def test_images_that_a_network_cannot_take_are_refused_by_name(spec, channels, size, words):
    with pytest.raises(UserError) as caught:
        make_net(spec, channels=channels, image_size=size, classes=10)
    assert words in str(caught.value)


@pytest.mark.parametrize(("depth", "size"), [(3, 8), (3, 15), (4, 16), (5, 28), (5, 32), (6, 64)])
def test_the_deepest_convnet_that_the_advice_names_is_taken(depth, size):
    make_net(f"convnet:depth={depth}", channels=1, image_size=size, classes=10)
