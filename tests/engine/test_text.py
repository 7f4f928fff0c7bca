"""What is printed of a text that somebody else wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pseudocoreset.engine.text import LONGEST, nearest, printable, significant


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("one\ntwo\r\tthree", r"one\ntwo\r\tthree"),
        ("\x7f\x9b\x00", r"\x7f\x9b\x00"),
        ("\u202eevil\u2066\u200b", r"\u202eevil\u2066\u200b"),
        ("\u2028\u2029\x85", r"\u2028\u2029\x85"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("naïve 猫 × μ 👍", "naïve 猫 × μ 👍"),
        (b"\x1b", r"b'\x1b'"),
        (12, "12"),
    ],
)
def test_printable_escapes_what_a_terminal_would_obey(text, shown):
    assert printable(text) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_printable_gives_one_visible_line_that_can_be_written(text):
    shown = printable(text)
    assert len(shown) <= LONGEST
    assert len(shown.splitlines()) <= 1
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert all(c.isprintable() or c.isspace() for c in shown)


@pytest.mark.parametrize("text", ["x" * (LONGEST + 1), "\n" * LONGEST])
def test_printable_cuts_long_texts(text):
    assert len(printable(text)) == LONGEST
    assert printable(text).endswith("…")
    assert printable("x" * LONGEST) == "x" * LONGEST


def test_nearest_finds_a_misspelt_word():
    known = ("convnet", "lenet", "mlp")
    assert nearest("convnte", known) == "convnet"
    assert nearest("ConvNet", known) == "convnet"
    assert nearest("transformer", known) is None
    assert nearest("", known) is None


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.0, 3, "0"),
        (-12.345, 3, "−12.3"),
        (117762.86, 4, "117,763"),
        (1234.5, 4, "1234"),
        (999.97, 3, "1,000"),
        (9999.7, 4, "10,000"),
        (0.006399, 4, "0.006399"),
        (1e-6, 3, "1.0 × 10⁻⁶"),
        (2.5e8, 4, "2.50 × 10⁸"),
        (float("nan"), 3, "–"),
    ],
)
def test_numbers_are_shown_without_an_exponent_where_they_can_be_read(value, digits, shown):
    assert significant(value, digits) == shown
