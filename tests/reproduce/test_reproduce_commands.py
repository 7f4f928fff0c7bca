"""The commands of the page measure its cells as they are."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from made_cells import made
from pseudocoreset.recipes import recipe_for
from pseudocoreset.reproduce.cells import TABLES, Cell, Scope
from pseudocoreset.reproduce.commands import commands_for
from pseudocoreset.reproduce.registry import chosen_cells
from pseudocoreset.reproduce.stored import measured_cells

RESULTS = Path(__file__).parents[2] / "results"


def options_of(command: str) -> tuple[str, dict[str, str]]:
    program, name, table, *words = shlex.split(command)
    assert (program, name) == ("pseudocoreset", "reproduce")
    words = [word for word in words if word != "--half"]  # the only one without a value
    return table, {
        key.removeprefix("--"): v for key, v in zip(words[::2], words[1::2], strict=True)
    }


@pytest.mark.parametrize("table", TABLES)
def test_commands_measure_every_stored_cell_once_as_it_is(table):
    found = measured_cells(RESULTS, Scope("cifar10"), table)
    asked = {}
    for command in commands_for(found, Scope("cifar10")):
        name, options = options_of(command)
        assert name == table
        for cell in chosen_cells(
            [name], options.get("recipe", "paper"), "cifar10", options["cells"]
        ):
            assert cell not in asked
            asked[cell] = options
    assert asked.keys() == found.keys()
    for cell, measured in found.items():
        experts, options = measured.content["experts"], asked[cell]
        assert "seed" not in options
        assert int(options.get("seeds", 5)) == measured.seeds
        if experts is None:
            assert not options.keys() & {"num", "epochs", "steps"}
            continue
        assert (int(options["num"]), int(options["epochs"])) == (experts["num"], experts["epochs"])
        usual = recipe_for("cifar10", cell.ipc, cell.method, cell.recipe).values["steps"]
        steps = int(options.get("steps", usual))
        assert steps == measured.content["coreset"]["config"]["steps"]


def test_commands_name_other_seeds_data_and_scopes():
    cell = Cell("table1", "random", 10, None)
    measured = made(cell, 30.0)
    content = {**measured.content, "seeds": [{}] * 2, "samplers": [{"seed": 3}, {"seed": 4}]}
    found = {cell: replace(measured, content=content)}
    assert commands_for(found, Scope("mine", 100, 16)) == [
        "pseudocoreset reproduce table1 --data SPEC --out elsewhere --image-size 16 --holdout 100"
        " --seeds 2 --seed 3 --cells 'random/10'"
    ]
