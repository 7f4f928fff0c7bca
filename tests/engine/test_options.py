"""Options are fields: limits, what was given, what a recipe fills in, and who follows them."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from math import inf, nan

import numpy
import pytest
import torch
import yaml

import toy_methods
from pseudocoreset import FBPC, SGHMC, BPCReverseKL, BPCWasserstein, Unrolled, UserError, distill
from pseudocoreset.distillation import DistillOptions
from pseudocoreset.engine.options import Options, default_of, limits_of, option, parsed, type_of
from pseudocoreset.experts import ExpertOptions, train_experts
from pseudocoreset.methods import METHODS
from pseudocoreset.posterior import PROTOCOLS, SAMPLERS, Ensemble, named_sampler, sample
from pseudocoreset.recipes import NAMES, _shipped
from small_world import NET, make_context, make_method, make_points, make_rng

ALL = [*METHODS.values(), *SAMPLERS.values(), DistillOptions, ExpertOptions]


@dataclass(frozen=True)
class Example(Options):
    """One option of each type."""

    rate: float = option(0.5, "a number", above=0, at_most=2)
    count: int = option(3, "a whole number", at_least=1, below=10)
    kind: str = option("a", "a text", choices=("a", "b"))
    on: bool = option(False, "true or false")
    last: int | None = option(None, "a whole number or none", at_least=0)
    names: tuple[str, ...] = option((), "texts")

    def check(self):
        if self.last is not None and self.last < self.count:
            raise UserError("`last` is too small.", "last")


def refused(call, *given, **named):
    """The parameter that is named where this is refused."""
    with pytest.raises(UserError) as error:
        call(*given, **named)
    assert f"`{error.value.parameter}`" in str(error.value)
    return error.value.parameter


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rate", 0.0),
        ("rate", 2.1),
        ("rate", nan),
        ("rate", inf),
        ("rate", "0.5"),
        ("rate", None),
        ("rate", True),
        ("count", 0),
        ("count", 10),
        ("count", 2.0),
        ("count", True),
        ("kind", "c"),
        ("kind", 1),
        ("on", 1),
        ("on", "true"),
        ("last", -1),
        ("last", 1.5),
        ("names", ["a"]),
        ("names", (1,)),
    ],
)
def test_value_outside_its_limits_or_type_is_refused(name, value):
    assert refused(Example, **{name: value}) == name


def test_value_at_its_limits_is_taken():
    for name, value in [("rate", 2.0), ("rate", 1), ("count", 1), ("count", 9), ("last", 0)]:
        assert getattr(Example(**{name: value}), name) == value
    assert Example(names=("a", "b")).names == ("a", "b")


def test_numbers_of_numpy_are_taken_as_pythons():
    found = Example(rate=numpy.float32(0.5), count=numpy.int64(4), last=numpy.uint8(7))
    assert (found.rate, found.count, found.last) == (0.5, 4, 7)
    assert [type(value) for value in (found.rate, found.count, found.last)] == [float, int, int]
    assert refused(Example, count=numpy.float64(2.0)) == "count"
    assert refused(Example, rate=numpy.float32(nan)) == "rate"
    assert refused(Example, count=numpy.bool_(True)) == "count"


def test_unknown_name_is_refused():
    with pytest.raises(TypeError, match="speed"):
        Example(speed=3)


def test_given_are_the_names_that_were_written():
    assert Example().given == frozenset()
    assert Example(0.5, kind="a").given == {"rate", "kind"}  # also where it is the default
    assert FBPC(gamma=0.1).given == {"gamma"}
    assert Example(0.5) == Example()  # what was given does not make another value


def test_resolved_fills_in_what_was_not_given():
    values = {"rate": 1.5, "count": 5, "no option of this": 1}
    complete = Example(count=4).resolved(values)
    assert (complete.rate, complete.count, complete.kind) == (1.5, 4, "a")
    assert complete.given == set(complete.as_dict())
    assert complete.resolved({"rate": 0.1}) == complete  # nothing is left to fill in
    assert Example(count=3).resolved({"count": 5}).count == 3


def test_resolved_checks_the_values_and_how_they_fit():
    assert refused(Example().resolved, {"rate": 3.0}) == "rate"
    assert refused(Example(count=5).resolved, {"last": 4}) == "last"
    assert Example(count=5, last=4).last == 4  # before it is complete, nothing is known


@pytest.mark.parametrize(
    "same", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
def test_copies_are_equal_and_keep_what_was_given(same):
    for original in (Example(count=4), FBPC(gamma=0.2), SGHMC(step=0.1), DistillOptions(ipc=3)):
        made = same(original)
        assert made == original
        assert hash(made) == hash(original)
        assert made.given == original.given
        assert made.resolved({"rate": 1.5}).as_dict() == original.resolved({"rate": 1.5}).as_dict()


def test_replace_changes_one_value_within_its_limits():
    changed = replace(FBPC(gamma=0.2), samples=7)
    assert (changed.gamma, changed.samples) == (0.2, 7)
    assert refused(replace, FBPC(), samples=0) == "samples"
    with pytest.raises(FrozenInstanceError):
        changed.gamma = 0.3


def test_repr_is_one_line_of_all_values():
    assert repr(toy_methods.Quadratic()).startswith("Quadratic(centre=0.5")
    assert "\n" not in repr(FBPC())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rate", "1e-5", 1e-5),
        ("rate", "1", 1.0),
        ("rate", 1, 1.0),
        ("count", "7", 7),
        ("kind", "b", "b"),
        ("on", "true", True),
        ("on", False, False),
        ("last", "none", None),
        ("last", None, None),
        ("last", "4", 4),
        ("names", "a", ("a",)),
        ("names", ["a", "b"], ("a", "b")),
    ],
)
def test_text_is_parsed_to_the_type_of_its_field(name, text, value):
    found = parsed(Example, name, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rate", "fast"),
        ("rate", None),
        ("rate", [1]),
        ("rate", True),
        ("count", "1.5"),
        ("count", 1.5),
        ("count", {}),
        ("on", "yes"),
        ("kind", None),
        ("kind", ["a"]),
        ("last", "x"),
        ("names", [1]),
    ],
)
def test_text_of_another_type_is_refused(name, text):
    assert refused(parsed, Example, name, text) == name


# All options of the package.


@pytest.mark.parametrize("options", ALL, ids=lambda o: o.__name__)
def test_every_option_has_help_and_a_default_within_its_limits(options):
    assert options() == options(**options().as_dict())
    for each in fields(options):
        limits = limits_of(each)
        assert limits.help != each.name, each.name
        assert len(limits.help) > 5
        assert limits.help == limits.help.strip(" .")
        assert default_of(each) == getattr(options(), each.name)
        type_of(options, each.name)


@pytest.mark.parametrize("options", ALL, ids=lambda o: o.__name__)
def test_every_number_is_limited(options):
    """A number without a limit would take one that means nothing, and NaN is never one."""
    for each in fields(options):
        kind = type(default_of(each))
        if kind in (int, float):
            assert refused(options, **{each.name: kind(-1e9)}) == each.name
        if kind is float:
            assert refused(options, **{each.name: nan}) == each.name


def test_shipped_recipes_name_options_only():
    for (data, ipc), sections in _shipped().items():
        assert set(sections) <= set(NAMES)
        for section, methods in sections.items():
            for method, values in methods.items():
                own = {**DistillOptions().as_dict(), **METHODS[method]().as_dict()}
                assert values.keys() <= own.keys(), (data, ipc, section, method)
                for name, value in values.items():
                    owner = (
                        METHODS[method] if name in METHODS[method]().as_dict() else DistillOptions
                    )
                    assert getattr(owner(**{name: parsed(owner, name, value)}), name) == value


def test_options_survive_a_yaml_file():
    for options in ALL:
        kept = yaml.safe_load(yaml.safe_dump(options().as_dict()))
        assert options(**{n: parsed(options, n, v) for n, v in kept.items()}) == options()


def test_options_of_two_fit_each_other():
    assert refused(FBPC(from_epoch=3, to_epoch=2).resolved, {}) == "to_epoch"
    assert refused(Unrolled(networks=9, pool=8).resolved, {}) == "networks"
    assert refused(BPCReverseKL(samples=1).resolved, {}) == "samples"
    assert refused(SGHMC(epochs=7, every=2).resolved, {}) == "every"
    assert refused(ExpertOptions(epochs=2, from_epoch=3).resolved, {}) == "from_epoch"


# Who follows them.

OTHER = {
    "samples": 7,
    "from_epoch": 2,
    "to_epoch": 2,
    "gamma": 0.5,
    "lr_map": 0.003,
    "max_map_steps": 5,
    "draws": 3,
    "experts_each": 2,
    "reuse": 3,
    "reuse_steps": 2,
    "lr_x": 0.3,
    "lr_u": 0.3,
    "covariance_steps": 5,
    "real_batch": 8,
    "start_epochs": 1,
    "student_steps": 3,
    "lr_student": 0.2,
    "expert_epochs": 2,
    "noise": 0.1,
    "likelihood_batch": 9,
    "weight_x": 2.0,
    "weight_u": 2.0,
    "lr_lr": 0.1,
    "window": 4,
    "networks": 1,
    "pool": 4,
    "longest": 3,
    "inner_step": 0.2,
    "inner_friction": 0.5,
    "inner_decay": 0.1,
    "clip": 0.5,
    "head_prior": 0.1,
    "head_precision": 30.0,
    "kl_weight": 9.0,
    "pool_steps": 1,
    "lr_pool": 0.1,
    "chains": 3,
    "chain_steps": 2,
    "warm_up": 6,
    "lr_chains": 0.2,
    "friction": 0.3,
    "prior": 9.0,
    "temperature": 0.5,
}
"""Another value of each option of a method, which a gradient is to follow."""
MEMORY_ALONE = {"group"}


def some_updates(method, store, data):
    """The gradients of a few updates, of which each goes on with what the one before kept."""
    divergence = method.prepare(make_context(store, data))
    state, found = divergence.start(), []
    for seed in range(3):
        estimate = divergence.gradient(make_points(data), state, make_rng(seed))
        state = estimate.state
        found.append(estimate.gradients["inputs"])
    return torch.stack(found)


@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if kind.makes_updates])
def test_method_follows_each_of_its_options(name, store, data):
    own = set(METHODS[name]().as_dict())
    start = {"start_epochs": 2, "gamma": 1.0, "draws": 2, "reuse": 2}
    start = {k: v for k, v in start.items() if k in own}
    usual = some_updates(make_method(name, **start), store, data)
    for each in own - MEMORY_ALONE:
        changed = make_method(name, **start | {each: OTHER[each]})
        assert not torch.allclose(some_updates(changed, store, data), usual, rtol=1e-4), each


OTHER_SAMPLER = {
    "step": 0.1,
    "prior": 3.0,
    "epochs": 8,
    "every": 1,
    "batch": 4,
    "dsa": "off",
    "friction": 0.5,
    "temperature": 0.1,
    "schedule": "cosine",
    "weight_decay": 0.5,
    "first": True,
    "head_prior": 0.1,
    "head_precision": 30.0,
    "heads": 3,
}


@pytest.fixture(scope="module")
def coreset(data):
    return distill(data, (), "random", ipc=2, net=NET, device="cpu", progress=False)


@pytest.mark.parametrize("name", SAMPLERS)
def test_sampler_follows_each_of_its_options(name, coreset):
    kind = SAMPLERS[name]
    short = {"epochs": 4, "every": 2}

    def params(**changes):
        sampler = kind(**short | changes)
        return sample(coreset, sampler, chains=1, device="cpu", progress=False).params

    usual = params()
    for each in kind().as_dict():
        found = params(**{each: OTHER_SAMPLER[each]})
        assert found.shape != usual.shape or not torch.allclose(found, usual, rtol=1e-4), each


OTHER_LOOP = {
    "ipc": 3,
    "form": "mosaic:2",
    "labels": "hard",
    "steps": 3,
    "lr_images": 0.3,
    "momentum": 0.9,
    "average": 0.5,
    "batch": 3,
    "dsa": "off",
    "lr_labels": 300.0,
    "init": "noise",
    "label_start": "experts",
    "label_temperature": 0.5,
    "optimizer": "adam",
}


def test_loop_follows_each_of_its_options(store, data):
    usual = {"ipc": 2, "steps": 2, "lr_images": 0.1, "labels": "learned"}
    method = make_method("fbpc-isotropic", gamma=2.0)

    def made(**changes):
        options = {**usual, **changes}
        return distill(data, store, method, **options, seed=5, device="cpu", progress=False)

    first = made()
    for each in set(DistillOptions().as_dict()) - {"checkpoint_every", "target_noise"}:
        assert made(**{each: OTHER_LOOP[each]}) != first, each
    assert made(checkpoint_every=1) == first


OTHER_EXPERTS = {"num": 2, "epochs": 3, "lr": 0.01, "batch": 30, "dsa": "off", "from_epoch": 1}


def test_experts_follow_each_of_their_options(data, tmp_path):
    usual = {"num": 1, "epochs": 2, "lr": 0.1, "batch": 20}

    def trained(name, **changes):
        store = train_experts(
            data, NET, tmp_path / name, **usual | changes, device="cpu", progress=False
        )
        weights = [
            store.snapshot(t, store.last_epoch, torch.device("cpu")) for t in store.trajectories
        ]
        return len(store), store.first_epoch, torch.stack([w.params for w in weights])

    first = trained("usual")
    for each in ExpertOptions().as_dict():
        *shape, params = trained(each, **{each: (OTHER_EXPERTS | {"half": True})[each]})
        same_shape = shape == list(first[:2])
        assert not same_shape or not torch.equal(params, first[2]), each


def test_options_object_and_single_options_are_joined(data, tmp_path):
    given = ExpertOptions(num=1, epochs=2, lr=0.1)
    store = train_experts(
        data, NET, tmp_path, given, epochs=1, batch=20, device="cpu", progress=False
    )
    assert (store.last_epoch, store.identity.lr, store.identity.batch) == (1, 0.1, 20)
    for name, value in [("num", 0), ("lr", nan), ("from_epoch", 9), ("dsa", "blur")]:
        changes = {name: value, "device": "cpu", "progress": False}
        assert refused(train_experts, data, NET, tmp_path / "no", given, **changes) == name
    assert not (tmp_path / "no").exists()


def test_protocols_fill_in_what_was_not_given():
    assert named_sampler("tuned") == SGHMC()
    for name, values in PROTOCOLS.items():
        found = named_sampler(name, SGHMC(step=0.5)).as_dict()
        assert found == {**SGHMC(step=0.5).as_dict(), **values}
    assert named_sampler("bayes", SGHMC(prior=7.0)).prior == 7.0
    assert named_sampler("paper", Ensemble()).prior == 0.0
    assert refused(named_sampler, "cold") == "protocol"


def test_wasserstein_reads_no_option_of_the_sampled_methods():
    assert not {"samples", "noise", "group"} & set(BPCWasserstein().as_dict())
    with pytest.raises(TypeError):
        BPCWasserstein(samples=3)
