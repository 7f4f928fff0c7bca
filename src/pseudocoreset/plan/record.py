"""The result of `plan`."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pseudocoreset.engine.versions import versions


@dataclass(frozen=True)
class Plan:
    """The estimated cost of a command."""

    command: str
    parameters: dict[str, int]
    """Of each network, by its spec."""
    disk_bytes: int
    peak_bytes: int
    once_s: float
    """Seconds of work that is done once."""
    step: str
    """What a step is, in one word."""
    steps: int
    step_s: float
    measured_steps: int
    device: str
    notes: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The whole time."""
        return self.once_s + self.steps * self.step_s

    def then(self, other: "Plan") -> "Plan":
        """The sum of two plans."""
        steps = self.steps + other.steps
        return replace(
            self,
            parameters={**self.parameters, **other.parameters},
            disk_bytes=self.disk_bytes + other.disk_bytes,
            peak_bytes=max(self.peak_bytes, other.peak_bytes),
            once_s=self.once_s + other.once_s,
            steps=steps,
            step_s=(self.steps * self.step_s + other.steps * other.step_s) / steps,
            measured_steps=self.measured_steps + other.measured_steps,
            notes=list(dict.fromkeys([*self.notes, *other.notes])),
        )

    def as_json(self) -> dict[str, Any]:
        """The content of the file that `plan --json` writes."""
        return {**asdict(self), "seconds": self.seconds, "versions": versions()}

    def in_words(self) -> str:
        """The text that `plan` prints."""
        nets = [f"{count:,} ({spec})" for spec, count in self.parameters.items()]
        rows = {
            "parameters": ", ".join(nets),
            "disk": _size(self.disk_bytes),
            "peak memory": f"about {_size(self.peak_bytes)}"
            + (" of the process" if self.device == "cpu" else " of the device"),
            "time": f"about {_duration(self.seconds)} on {self.device}: {self.steps:,} × "
            f"{_duration(self.step_s)} ({self.step}; {self.measured_steps} measured), and "
            f"{_duration(self.once_s)} once",
        }
        lines = [f"{self.command} would take", *(f"  {n:<12} {v}" for n, v in rows.items())]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def _size(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.2f} GiB"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
