"""A posterior predicts: what it takes, and that all ways to say the same give the same."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from PIL import Image

from pseudocoreset import SGHMC, UserError, distill, evaluate, from_arrays, load_data, sample
from pseudocoreset.evaluation.metrics import Predicted, scores
from pseudocoreset.likelihoods import Prediction, RegressionPrediction
from pseudocoreset.posterior import Posterior
from small_world import NET, make_data

QUIET = {"device": "cpu", "progress": False}
SHORT = SGHMC(epochs=60, every=20, step=0.05)
FEW = 7


@pytest.fixture(scope="module")
def posterior(data):
    coreset = distill(data, (), "random", ipc=2, net=NET, **QUIET)
    return sample(coreset, SHORT, chains=2, **QUIET)


@pytest.fixture(scope="module")
def images(data):
    """Some test images as bytes."""
    return data.test.inputs[:FEW]


@pytest.fixture(scope="module")
def expected(posterior, images):
    """What the bytes predict."""
    return posterior.predict(images, samples=True, device="cpu")


def assert_same(found, expected, tolerance=1e-5):
    for name in ("probs", "entropy", "mutual_information"):
        one, other = getattr(found, name), getattr(expected, name)
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def pil(images):
    return [Image.fromarray(image[0].numpy()) for image in images]


def as_pngs(images, tmp_path):
    paths = []
    for number, image in enumerate(pil(images)):
        paths.append(tmp_path / f"{number}.png")
        image.save(paths[-1])
    return paths


def as_npz(images, tmp_path):
    np.savez(tmp_path / "some.npz", images=images[:, 0].numpy())
    return tmp_path / "some.npz"


WAYS = {
    "array": lambda images, _: images.numpy(),
    "grey array": lambda images, _: images[:, 0].numpy(),
    "channels last": lambda images, _: images.permute(0, 2, 3, 1).numpy(),
    "list of tensors": lambda images, _: list(images),
    "list of arrays": lambda images, _: [image.numpy() for image in images],
    "PIL": lambda images, _: pil(images),
    "PIL in colour": lambda images, _: [image.convert("RGB") for image in pil(images)],
    "paths": as_pngs,
    "texts": lambda images, tmp_path: [str(path) for path in as_pngs(images, tmp_path)],
    "folder": lambda images, tmp_path: as_pngs(images, tmp_path)[0].parent,
    "npz": as_npz,
}


@pytest.mark.parametrize("way", WAYS)
def test_bytes_in_every_form_give_the_same_prediction(posterior, images, expected, tmp_path, way):
    found = posterior.predict(WAYS[way](images, tmp_path), device="cpu")
    assert isinstance(found, Prediction)
    assert len(found) == FEW
    assert_same(found, expected)


def test_one_image_alone_is_a_prediction_of_one(posterior, images, expected, tmp_path):
    path = as_pngs(images[:1], tmp_path)[0]
    for one in (images[0], images[0].numpy(), images[0, 0], pil(images)[0], path, str(path)):
        found = posterior.predict(one, device="cpu")
        assert len(found) == 1
        torch.testing.assert_close(found.probs, expected.probs[:1], rtol=1e-5, atol=1e-5)


def test_calling_is_predicting(posterior, images, expected):
    assert_same(posterior(images, device="cpu"), expected)
    assert torch.equal(posterior(images, samples=True).samples, expected.samples)


def test_floats_need_a_word_and_are_then_what_it_says(posterior, images, expected, data):
    unit = images.float() / 255
    assert_same(posterior.predict(unit, scaled=True, device="cpu"), expected)
    assert_same(posterior.predict(unit.numpy().astype(np.float64), scaled=True), expected)
    seen = data.scaling.apply(images)
    assert_same(posterior.predict(seen, normalised=True, device="cpu"), expected)
    mistaken = posterior.predict(seen.clamp(0, 1), scaled=True, device="cpu")
    assert not torch.allclose(mistaken.probs, expected.probs, atol=1e-2)  # the words matter


def refused(posterior, x, **words):
    """The parameter that is named where this is refused."""
    with pytest.raises(UserError) as error:
        posterior.predict(x, device="cpu", **words)
    return error.value.parameter


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(2, 1, 8, 8),
        np.zeros((2, 1, 8, 8)),
        torch.zeros(2, 1, 8, 8).half().numpy(),
        torch.zeros(2, 1, 8, 8, dtype=torch.int64),
        torch.zeros(2, 3, 8, 8, dtype=torch.uint8),
        torch.zeros(0, 1, 8, 8, dtype=torch.uint8),
        torch.zeros(2, 1, 8, 8, dtype=torch.bool),
        [1.0, [2.0]],
        None,
        {},
        [],
        object(),
        "nowhere.png",
        ["nowhere.png"],
    ],
)
def test_input_that_is_no_image_is_refused(posterior, x):
    assert refused(posterior, x) == "x"


def test_floats_that_are_not_what_the_word_says_are_refused(posterior):
    assert refused(posterior, torch.full((1, 1, 8, 8), 1.5), scaled=True) == "x"
    assert refused(posterior, torch.full((1, 1, 8, 8), -0.1), scaled=True) == "x"
    assert refused(posterior, torch.full((1, 1, 8, 8), torch.nan), normalised=True) == "x"
    assert refused(posterior, torch.zeros(1, 1, 9, 9), scaled=True) == "x"
    assert refused(posterior, torch.zeros(1, 1, 8, 8), scaled=True, normalised=True) == "scaled"


def test_images_of_another_size_are_brought_to_ours(posterior, images, expected):
    large = images.repeat_interleave(2, 2).repeat_interleave(2, 3)
    found = posterior.predict(large, device="cpu")
    assert found.probs.shape == expected.probs.shape


def test_uncertainty_is_that_of_a_slow_twin(posterior, images, expected):
    """Entropy of the mean, less the mean of the entropies; sample by sample, in Python."""
    module = posterior.make_net().build().eval()
    by_sample = []
    for params in posterior.params:
        torch.nn.utils.vector_to_parameters(params, module.parameters())
        with torch.no_grad():
            by_sample.append(module(posterior.scaling.apply(images)).double().softmax(1).tolist())
    for point in range(FEW):
        rows = [sample[point] for sample in by_sample]
        mean = [sum(row[k] for row in rows) / len(rows) for k in range(3)]
        entropy = -sum(p * log(p) for p in mean)
        inner = -sum(p * log(p) for row in rows for p in row) / len(rows)
        assert expected.probs[point].tolist() == pytest.approx(mean, rel=1e-4)
        assert float(expected.entropy[point]) == pytest.approx(entropy, rel=1e-4)
        information = float(expected.mutual_information[point])
        assert information == pytest.approx(entropy - inner, rel=1e-3, abs=1e-5)
    assert expected.mutual_information.max() > 1e-3
    torch.testing.assert_close(
        expected.samples.exp(), torch.tensor(by_sample).float(), rtol=1e-4, atol=1e-5
    )
    assert posterior.predict(images).samples is None


def test_predictions_are_those_that_evaluate_scores(posterior, data):
    found = posterior.predict(data.test.inputs, samples=True, device="cpu")
    evaluation = evaluate(posterior, data, **QUIET)
    assert scores(Predicted(found.samples, data.test.targets)) == evaluation.seeds[0]
    share = (found.classes == data.test.targets).double().mean()
    assert evaluation.accuracy == pytest.approx(float(share))


def test_posterior_of_a_file_predicts_the_same(posterior, images, expected, tmp_path):
    posterior.save(tmp_path / "posterior.safetensors")
    loaded = Posterior.load(tmp_path / "posterior.safetensors")
    assert_same(loaded.predict(images, device="cpu"), expected)


def test_floats_on_digits_are_refused_where_bytes_are_right():
    """Floats in [0, 1] used to be taken as they are, and to score as chance does."""
    data = load_data("digits")
    coreset = distill(data, (), "random", ipc=10, net=NET, **QUIET)
    posterior = sample(coreset, SGHMC(epochs=200, every=100), chains=1, **QUIET)
    some = data.test.inputs[:200]
    right = posterior.predict(some, device="cpu")
    assert (right.classes == data.test.targets[:200]).double().mean() > 0.7
    assert refused(posterior, some.float() / 255) == "x"
    same = posterior.predict(some.float() / 255, scaled=True, device="cpu")
    torch.testing.assert_close(same.probs, right.probs, rtol=1e-4, atol=1e-5)


# Tables.


CSV = "size,colour,price\n{rows}\n"


@pytest.fixture(scope="module")
def houses(tmp_path_factory):
    """A CSV with a number and a category, the price of which is to be told."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for size in (50 + 100 * torch.rand(80, generator=generator)).tolist():
        colour = "red" if int(size) % 2 else "blue"
        rows.append(f"{size:.3f},{colour},{3 * size + (20.5 if colour == 'red' else 0.25):.3f}")
    path = tmp_path_factory.mktemp("houses") / "houses.csv"
    path.write_text(CSV.format(rows="\n".join(rows)))
    return load_data(f"table:{path}", target="price")


@pytest.fixture(scope="module")
def prices(houses):
    coreset = distill(
        houses, (), "random", ipc=20, net="mlp:depth=1,width=16", target_noise=0.7, **QUIET
    )
    return sample(coreset, SGHMC(epochs=300, every=100), chains=1, **QUIET)


def test_regression_is_in_raw_units_and_its_spread_is_of_samples_and_noise(prices, houses):
    found = prices.predict(houses.test.inputs, samples=True, device="cpu")
    assert isinstance(found, RegressionPrediction)
    scale = torch.tensor(houses.target_scaling.std)
    torch.testing.assert_close(found.mean, found.samples.mean(0))
    spread = found.samples.var(0, correction=0)
    torch.testing.assert_close(found.epistemic_std, spread.sqrt(), rtol=1e-3, atol=1e-3)
    noise = prices.likelihood.noise * scale
    torch.testing.assert_close(found.std, (spread + noise.square()).sqrt(), rtol=1e-3, atol=1e-3)
    module = prices.make_net().build().eval()
    rows = []
    for params in prices.params:
        torch.nn.utils.vector_to_parameters(params, module.parameters())
        with torch.no_grad():
            rows.append(module(houses.scaling.apply(houses.test.inputs)))
    expected = torch.stack(rows).mean(0) * scale + torch.tensor(houses.target_scaling.mean)
    torch.testing.assert_close(found.mean, expected, rtol=1e-4, atol=1e-2)
    rmse = float((found.mean - houses.test.targets).square().mean().sqrt())
    assert evaluate(prices, houses, **QUIET).rmse == pytest.approx(rmse, rel=1e-5)


def test_rows_as_numbers_and_in_a_csv_give_the_same(prices, tmp_path):
    (tmp_path / "new.csv").write_text("colour,size\nred,77\nblue,120.5\n")
    of_file = prices.predict(tmp_path / "new.csv", device="cpu")
    assert of_file.mean.shape == (2, 1)
    (tmp_path / "old.csv").write_text("size,colour,price\n77,red,1\n120.5,blue,2\n")
    again = prices.predict(str(tmp_path / "old.csv"), device="cpu")  # the target counts for nothing
    torch.testing.assert_close(again.mean, of_file.mean)
    assert of_file.mean[1] > of_file.mean[0]  # the larger one is dearer


def test_rows_are_raw_unless_they_are_said_to_be_normalised(prices, houses):
    rows = houses.test.inputs[:4]
    expected = prices.predict(rows, device="cpu")
    for same in (rows.numpy(), rows.tolist(), rows.numpy().astype(np.float64)):
        torch.testing.assert_close(prices.predict(same, device="cpu").mean, expected.mean)
    scaled = prices.predict(houses.scaling.apply(rows), normalised=True, device="cpu")
    torch.testing.assert_close(scaled.mean, expected.mean)
    one = prices.predict(rows[0], device="cpu")
    torch.testing.assert_close(one.mean, expected.mean[:1])


def test_rows_that_do_not_fit_are_refused(prices, tmp_path):
    (tmp_path / "odd.csv").write_text("size,colour\n77,green\n")
    (tmp_path / "short.csv").write_text("size\n77\n")
    for x in (
        torch.zeros(2, 99),
        torch.full((1, 3), torch.nan),
        torch.zeros(0, 3),
        Image.new("L", (8, 8)),
        "nowhere.csv",
        tmp_path,
    ):
        assert refused(prices, x) == "x"
    for name in ("odd", "short"):
        with pytest.raises(UserError):
            prices.predict(tmp_path / f"{name}.csv")
    assert refused(prices, torch.zeros(1, 3), scaled=True) == "scaled"


def test_classes_of_a_table_are_predicted_as_those_of_images():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(90, 4, generator=generator)
    labels = (rows[:, 0] > 0).long()
    data = from_arrays(rows.numpy(), labels.numpy())
    coreset = distill(data, (), "random", ipc=10, net="mlp:depth=1,width=16", **QUIET)
    posterior = sample(coreset, SGHMC(epochs=300, every=100), chains=1, **QUIET)
    found = posterior.predict(data.test.inputs, device="cpu")
    assert isinstance(found, Prediction)
    share = float((found.classes == data.test.targets).double().mean())
    assert share > 0.7
    assert evaluate(posterior, data, **QUIET).accuracy == pytest.approx(share)


def test_prediction_has_a_line_for_its_repr(expected, prices, houses):
    assert repr(expected) == f"Prediction(points: {FEW}, classes: 3)"
    number = len(houses.test)
    found = prices.predict(houses.test.inputs)
    assert repr(found) == f"RegressionPrediction(points: {number}, targets: 1)"
    assert make_data().test.inputs.dtype == torch.uint8


def test_half_precision_takes_half_the_space_and_predicts_the_same(
    posterior, images, expected, tmp_path
):
    for half in (False, True):
        posterior.save(tmp_path / f"{half}.safetensors", half=half)
    whole, half = ((tmp_path / f"{name}.safetensors").stat().st_size for name in (False, True))
    assert whole - half == 2 * posterior.params.numel()
    again = Posterior.load(tmp_path / "True.safetensors")
    assert again.params.dtype == torch.float32
    assert_same(again.predict(images, device="cpu"), expected, tolerance=5e-3)
    large = replace(posterior, params=posterior.params * 1e6)
    with pytest.raises(UserError, match="half"):
        large.save(tmp_path / "large.safetensors", half=True)
    assert not (tmp_path / "large.safetensors").exists()
