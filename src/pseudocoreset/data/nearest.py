"""The nearest of the known names to one that is not known."""

from collections.abc import Sequence
from difflib import get_close_matches


def nearest(given: str, known: Sequence[str]) -> str | None:
    """The known name that is most like the given one, if any is."""
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(given.lower(), list(by_lower), n=1)
    return by_lower[near[0]] if near else None


def did_you_mean(given: str, known: Sequence[str]) -> str:
    """How a sentence ends that refuses a name: what was meant, or what is known."""
    near = nearest(given, known)
    return f"did you mean {near!r}?" if near else f"give one of {', '.join(known)}."
