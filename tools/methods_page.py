"""The tables of docs/methods.md and docs/tune.md, from the options' own fields and the recipes."""

from dataclasses import fields
from typing import Any

from pseudocoreset.distillation import DistillOptions
from pseudocoreset.engine.options import Options, default_of, limits_of
from pseudocoreset.engine.search import Among, Around, Search
from pseudocoreset.methods import METHODS
from pseudocoreset.posterior import PROTOCOLS, SAMPLERS
from pseudocoreset.recipes import NAMES, recipe_for
from pseudocoreset.reproduce.text_table import TextTable

SIZES = (1, 10, 50)
DATA = "cifar10"


def method_tables() -> dict[str, str]:
    """Markdown by the name of its place in the page."""
    found = {"loop-options": _options(DistillOptions)}
    for name, kind in METHODS.items():
        if kind.makes_updates:
            has_recipe = bool(recipe_for(DATA, SIZES[0], name).values)
            found[f"method-{name}"] = _with_recipes(name, kind) if has_recipe else _options(kind)
    for name, sampler in SAMPLERS.items():
        found[f"sampler-{name}"] = _options(sampler)
    values = [(f"`{name}`", _protocol(dict(changes))) for name, changes in PROTOCOLS.items()]
    found["searched"] = _searched()
    found["protocols"] = TextTable(("protocol", "sets"), [values]).markdown()
    return found


def _searched() -> str:
    """The options that `tune` tries, and which values."""
    kinds = {"": DistillOptions, **METHODS}
    names: dict[tuple[str, str], list[str]] = {}
    for method, kind in kinds.items():
        for each in fields(kind):
            search = limits_of(each).search
            if search is not None:
                names.setdefault((each.name, _tried(search)), []).append(f"`{method}`")
    rows = [
        (_flag(name), tried, "all" if methods == ["``"] else ", ".join(methods))
        for (name, tried), methods in names.items()
    ]
    return TextTable(("option", "values", "methods"), [rows]).markdown()


def _tried(search: Search) -> str:
    if isinstance(search, Around):
        low, high = search.bounds(1.0)
        return f"{low:.3g} to {high:g} times the recipe's, on a log scale"
    if isinstance(search, Among):
        return f"{', '.join(f'`{text}`' for text in search.values)}, and the recipe's"
    return "the experts' epochs" + (f", from {_flag(search.after)} on" if search.after else "")


def _protocol(changes: dict[str, Any]) -> str:
    flags = {name: _flag(name).strip("`") for name in changes}
    words = [
        f"`{flags[name]}`" if value is True else f"`{flags[name]} {_shown(value)}`"
        for name, value in changes.items()
    ]
    return ", ".join(words) or "nothing: the samplers' defaults"


def _options(kind: type[Options]) -> str:
    rows = [
        (_flag(each.name), _shown(default_of(each)), limits_of(each).help) for each in fields(kind)
    ]
    return TextTable(("option", "default", "meaning"), [rows]).markdown()


def _with_recipes(method: str, kind: type[Options]) -> str:
    """The method's options and what the recipes for CIFAR-10 make of them and of the loop's."""
    helps = {each.name: limits_of(each).help for each in (*fields(DistillOptions), *fields(kind))}
    defaults = {each.name: default_of(each) for each in (*fields(DistillOptions), *fields(kind))}
    found = {name: recipe_for(DATA, SIZES[0], method, name).section for name in NAMES}
    sections = [name for name in NAMES if found[name] == name]  # a method of ours has no `paper`
    values = [[recipe_for(DATA, ipc, method, name).values for ipc in SIZES] for name in sections]
    named = [name for one in values for name in one[0]]
    rows = []
    for name in dict.fromkeys([*named, *(each.name for each in fields(kind))]):
        cells = [_sizes([v.get(name, defaults[name]) for v in vs]) for vs in values]
        pairs = zip(cells[1:], cells, strict=False)
        later = ["the same" if cell == before else cell for cell, before in pairs]
        rows.append((_flag(name), cells[0], *later, helps[name]))
    titles = [f"`{section}`" for section in sections]
    return TextTable(("option", *titles, "meaning"), [rows]).markdown()


def _sizes(values: list[Any]) -> str:
    words = [_shown(value) for value in values]
    return words[0] if len(set(words)) == 1 else " · ".join(words)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _flag(name: str) -> str:
    return f"`--{name.replace('_', '-')}`"
