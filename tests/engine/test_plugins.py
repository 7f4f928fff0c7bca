"""A person's own code by its name: what is imported, and when."""

import functools
import subprocess
import sys

import pytest

from pseudocoreset.engine import plugins
from pseudocoreset.engine.plugins import imported, is_plugin_name, must_be_given, name_of
from pseudocoreset.errors import UserError

EVIL = "import pathlib\npathlib.Path('marker').touch()\ndef factory(*args): return args\n"


def some_factory() -> None: ...


class Outer:
    class Inner: ...

    def method(self) -> None: ...


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """The name of a module in the current folder that leaves a mark when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.setattr(plugins, "_allowed", {})
    (tmp_path / "evil_module.py").write_text(EVIL)
    yield tmp_path / "marker"
    sys.modules.pop("evil_module", None)


@pytest.mark.parametrize(
    ("what", "parameter"), [("network", "net"), ("method", "method"), ("sampler", "sampler")]
)
def test_a_file_causes_no_import(evil, what, parameter):
    before = list(sys.path)
    with pytest.raises(UserError) as caught:
        imported("evil_module:factory", what, source="file.safetensors")
    assert caught.value.parameter == parameter
    assert "evil_module" not in sys.modules
    assert sys.path == before
    assert not evil.exists()


def test_what_the_person_names_is_imported_and_files_may_name_it_then(evil):
    factory = imported("evil_module:factory", "network")
    assert evil.exists()
    assert factory(1, 2) == (1, 2)
    assert imported("evil_module:factory", "network", source="file") is factory
    for spec, what in (("evil_module:pathlib.Path", "network"), ("evil_module:factory", "method")):
        with pytest.raises(UserError):
            imported(spec, what, source="file")


def test_trusted_code_is_imported(evil):
    imported("evil_module:factory", "network", source="file", trust_code=True)
    assert evil.exists()


def test_a_name_is_followed_anew_each_time(evil):
    imported("evil_module:factory", "network")
    sys.modules["evil_module"].factory = some_factory
    assert imported("evil_module:factory", "network", source="file") is some_factory


def test_what_a_file_says_is_escaped(evil):
    with pytest.raises(UserError) as caught:
        imported("evil_module:factory", "network", source="a\x1b[2Jb\n.safetensors")
    assert str(caught.value).isprintable()


def local_class() -> type:
    class Local: ...

    return Local


@pytest.mark.parametrize(
    ("factory", "name", "given_again"),
    [
        (some_factory, "some_factory", False),
        (Outer.Inner, "Outer.Inner", False),
        (local_class(), "local_class.<locals>.Local", True),
        (lambda: None, "<lambda>", True),
        (Outer().method, "Outer.method.<given>", True),
    ],
)
def test_an_object_has_a_name_by_which_files_may_name_it(monkeypatch, factory, name, given_again):
    monkeypatch.setattr(plugins, "_allowed", {})
    spec = f"{__name__}:{name}"
    assert name_of(factory) == spec
    assert is_plugin_name(spec)
    assert must_be_given(spec) == given_again
    with pytest.raises(UserError):
        imported(spec, "network", source="file")
    assert plugins.remembered(factory, "network") == spec
    assert imported(spec, "network", source="file") is factory
    assert imported(spec, "network") is factory


def test_a_name_that_leads_elsewhere_is_not_the_objects():
    @functools.wraps(some_factory)
    def other() -> None: ...

    assert name_of(some_factory) == f"{__name__}:some_factory"
    assert name_of(other) == f"{__name__}:some_factory.<given>"


def test_partials_of_other_arguments_have_other_names():
    makers = [lambda: functools.partial(some_factory, 3), lambda: functools.partial(some_factory)]
    makers.append(lambda: functools.partial(some_factory, width=3))
    names = [name_of(make()) for make in makers]
    assert len(set(names)) == 3
    assert names == [name_of(make()) for make in makers]
    assert all(is_plugin_name(name) and must_be_given(name) for name in names)


@pytest.mark.parametrize("trust_code", [False, True])
@pytest.mark.parametrize("spec", ["some:outer.<locals>.Net", "__main__:Absent", "some:<lambda>"])
def test_what_has_no_importable_name_must_be_given_again(spec, trust_code):
    assert must_be_given(spec)
    with pytest.raises(UserError, match="give"):
        imported(spec, "network", source="file", trust_code=trust_code)


def test_a_class_of_a_script_can_be_named_by_its_files(tmp_path):
    (tmp_path / "script.py").write_text(
        "from pseudocoreset.engine.plugins import imported, remembered\n"
        "class Net: ...\n"
        "assert remembered(Net, 'network') == '__main__:Net'\n"
        "assert imported('__main__:Net', 'network', source='file') is Net\n"
    )
    subprocess.run([sys.executable, tmp_path / "script.py"], check=True)


@pytest.mark.parametrize("text", ["1 / 0\n", "raise SystemExit\n", "def ("])
def test_a_module_that_cannot_be_imported_is_refused(tmp_path, monkeypatch, text):
    (tmp_path / "broken_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for spec in ("broken_module:make", "nowhere.module:make"):
        with pytest.raises(UserError) as caught:
            imported(spec, "method")
        assert caught.value.parameter == "method"


@pytest.mark.parametrize("name", ["absent", "__doc__", "absent.__class__"])
def test_a_name_that_leads_to_nothing_callable_is_refused(name):
    with pytest.raises(UserError) as caught:
        imported(f"{__name__}:{name}", "sampler")
    assert caught.value.parameter == "sampler"


@pytest.mark.parametrize("spec", ["", ":", "a:", ":b", "a..b:c", "a:b:c", "a b:c", "a\n:b", "1:b"])
def test_malformed_names_are_refused(spec):
    assert not is_plugin_name(spec)
    for source in (None, "file"):
        with pytest.raises(UserError):
            imported(spec, "network", source=source, trust_code=True)
