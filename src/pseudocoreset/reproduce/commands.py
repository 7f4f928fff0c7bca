"""The commands that measure stored cells again."""

from pseudocoreset.reproduce import paper
from pseudocoreset.reproduce.cells import Scope
from pseudocoreset.reproduce.measure_cell import ReproduceOptions
from pseudocoreset.reproduce.stored import Measured, other_than_recipe
from pseudocoreset.reproduce.tables import Found


def commands_for(found: Found, scope: Scope) -> list[str]:
    """As few commands as measure these cells of one table."""
    cells: dict[tuple[str, str], list[str]] = {}
    for cell, measured in found.items():
        cells.setdefault((cell.table, _settings(measured, scope.data)), []).append(cell.name)
    of_paper = {paper.DATA, *(data for data, _, _ in paper.TABLE2)}
    where = f"--data {f'{scope.data}:DIR' if scope.data in of_paper else 'SPEC'} --out elsewhere"
    if scope.image_size:
        where += f" --image-size {scope.image_size}"
    if scope.holdout:
        where += f" --holdout {scope.holdout}"
    return [
        f"pseudocoreset reproduce {table} {where}{settings} --cells '{','.join(names)}'"
        for (table, settings), names in cells.items()
    ]


def _settings(measured: Measured, data: str) -> str:
    """The options that a cell is measured with."""
    options: dict[str, object] = {}
    if measured.cell.recipe is not None:
        options["recipe"] = measured.cell.recipe
    experts = measured.content["experts"]
    if experts is not None:
        options |= {name: experts[name] for name in ("num", "epochs")}
        if experts.get("first_epoch"):
            options["from-epoch"] = experts["first_epoch"]
        if experts.get("half"):
            options["half"] = ""
        others = other_than_recipe(measured, data)
        if "steps" in others:
            options["steps"] = others["steps"][0]
    usual = {"seeds": ReproduceOptions().seeds, "seed": 0}
    seeds = {"seeds": measured.seeds, "seed": measured.content["samplers"][0]["seed"]}
    options |= {name: value for name, value in seeds.items() if value != usual[name]}
    return "".join(f" --{name} {value}".rstrip() for name, value in options.items())
