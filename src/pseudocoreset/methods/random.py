"""Random real points, a baseline."""

from dataclasses import dataclass
from typing import ClassVar

from pseudocoreset.methods.base import Method


@dataclass(frozen=True)
class Random(Method):
    """Random real points, equally many per class. No updates are made."""

    name: ClassVar[str] = "random"
    needs_experts: ClassVar[bool] = False
    makes_updates: ClassVar[bool] = False
