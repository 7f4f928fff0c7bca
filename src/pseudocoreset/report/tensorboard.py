"""A run's metrics for TensorBoard, where the extra `tensorboard` is installed."""

from pathlib import Path

from pseudocoreset.errors import UserError
from pseudocoreset.run_folder import read_metrics


def write_tensorboard(run: Path) -> None:
    """Write the metrics of a run folder as TensorBoard's event file into its `tensorboard/`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "--tensorboard needs the package tensorboard: install pseudocoreset[tensorboard]."
        ) from None
    folder = run / "tensorboard"
    for old in folder.glob("events.out.tfevents.*"):  # metrics.jsonl holds all that they held
        old.unlink()
    with SummaryWriter(str(folder)) as writer:
        for row in read_metrics(run):
            for name, value in row.items():
                if name != "update":
                    writer.add_scalar(name, value, int(row["update"]))
