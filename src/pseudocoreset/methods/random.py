"""Random: real points drawn at random; the baseline that every method starts from."""

from dataclasses import dataclass
from typing import ClassVar

from pseudocoreset.methods.base import Method


@dataclass(frozen=True)
class Random(Method):
    """Real points, the same number per class; no update is made."""

    name: ClassVar[str] = "random"
    needs_experts: ClassVar[bool] = False
    makes_updates: ClassVar[bool] = False
