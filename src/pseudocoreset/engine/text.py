"""Make text from files and other code safe to print."""

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from math import isfinite

LONGEST = 200
"""The largest number of characters that are printed."""


def printable(text: object, longest: int = LONGEST) -> str:
    r"""The text in one line without control characters.

    Control characters, line breaks, lone surrogates, and what changes the direction of the text or
    can't be seen are replaced by their escapes (`\x1b`, `\u202e`). Other characters stay.

    Args:
        text: anything; what is not a text is taken as `str` gives it
        longest: characters that are kept; a longer text ends in an ellipsis
    """
    whole = str(text)
    shown = "".join(map(_escaped, whole[:longest]))
    if len(whole) <= longest and len(shown) <= longest:
        return shown
    return shown[: longest - 1] + "…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint at the nearest known word, to be put into a sentence; nothing where none is near."""
    found = nearest(word, known)
    return "" if found is None else f" (did you mean {found}?)"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, if one is near."""
    by_lower = {name.lower(): name for name in known}
    found = get_close_matches(word[:LONGEST].lower(), list(by_lower), n=1)
    return by_lower[found[0]] if found else None


def _escaped(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":  # any kind of space
        return character
    return character.encode("unicode_escape").decode("ascii")


def significant(value: float, digits: int = 3) -> str:
    """A number with a few significant digits, without an exponent where it can be read.

    Args:
        value: a finite number
        digits: how many; below ten million, all digits before the point are shown
    """
    if not isfinite(value):
        return "–"
    if value == 0 or 10 ** (1 - digits) <= abs(value) < 1e7:
        large = round(abs(value)) >= 10**digits
        shown = f"{value:,.0f}" if large else f"{value:.{digits}g}"
        return shown.replace("-", "−")
    mantissa, exponent = f"{value:.{digits - 2}e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa.replace('-', '−')} × 10{raised}"
