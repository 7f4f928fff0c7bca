"""The commands that continue from a run, with its own paths, ready to be pasted into a shell."""

import shlex
from collections.abc import Sequence

from pseudocoreset.data.load import EMBEDDED_TABLES
from pseudocoreset.report.run_report import RunReport

EMBEDDED = ("digits", *EMBEDDED_TABLES)


def commands(runs: Sequence[RunReport]) -> list[tuple[str, str]]:
    """What to type next, and what it does; for the last run that has a folder and a coreset.

    Args:
        runs: the runs of a page
    """
    found = [run for run in runs if run.folder is not None and run.coreset is not None]
    return _commands(found[-1]) if found else []


def _commands(run: RunReport) -> list[tuple[str, str]]:
    assert run.folder is not None
    assert run.coreset is not None
    folder = run.folder.resolve()
    place, data = _quoted(folder), data_words(run)
    posterior, images = _quoted(folder / "posterior.safetensors"), run.is_image
    found = []
    if run.evaluation is None:
        found.append((f"pseudocoreset evaluate {place} {data}", "score the coreset"))
    if run.random is None:
        found.append(
            (
                f"pseudocoreset evaluate {place} {data} --random",
                f"compare it with random {'images' if images else 'points'} of the same number",
            )
        )
    found += [
        (f"pseudocoreset sample {place} --out {posterior}", "sample a posterior and store it"),
        (
            f"pseudocoreset predict {posterior} {'my-image.png' if images else 'my-table.csv'}",
            "predict your own " + ("images" if images else "rows"),
        ),
        (
            f"pseudocoreset export {place} --to {'png' if images else 'npz'} --out "
            + _quoted(folder / ("images" if images else "points.npz")),
            f"write the {'images' if images else 'points'} for other programs",
        ),
        (f"pseudocoreset report {place}", "write this page again"),
    ]
    return found


def data_words(run: RunReport) -> str:
    """The options that name a run's data.

    Args:
        run: the run
    """
    options = dict(run.data_options)
    name = run.config.get("data")
    if "data" not in options:
        options = {"data": name if name in EMBEDDED else "SPEC"}
    words = []
    for option, value in options.items():
        between = "=" if str(value).startswith("-") else " "  # a value that looks like a flag
        words.append(f"--{option.replace('_', '-')}{between}{_quoted(value)}")
    return " ".join(words)


def _quoted(value: object) -> str:
    return shlex.quote(str(value))
