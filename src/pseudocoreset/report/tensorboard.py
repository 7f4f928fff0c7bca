"""A run's metrics for TensorBoard, where the extra `tensorboard` is installed."""

from importlib.util import find_spec
from pathlib import Path

from pseudocoreset.errors import UserError
from pseudocoreset.run_folder import read_metrics


def require_tensorboard() -> None:
    """Refuse to begin what could not be written in the end."""
    if find_spec("tensorboard") is None:
        raise UserError(
            "--tensorboard needs the package tensorboard: install pseudocoreset[tensorboard]."
        )


def write_tensorboard(run: Path) -> None:
    """Write the metrics of a run folder as TensorBoard's event file into its `tensorboard/`."""
    from torch.utils.tensorboard import SummaryWriter

    folder = run / "tensorboard"
    for old in folder.glob("events.out.tfevents.*"):  # metrics.jsonl holds all that they held
        old.unlink()
    with SummaryWriter(str(folder)) as writer:
        for row in read_metrics(run):
            for name, value in row.items():
                if name != "update":
                    writer.add_scalar(name, value, int(row["update"]))
