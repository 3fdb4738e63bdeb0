"""Facts about numbers in cells and claims."""

import pytest

from edgemeter.collector.published.numbers import number, quantity
from tests.fixtures.rows import table_row


def test_a_number_is_a_number_and_nothing_else():
    """What could be read in two ways, is about, or has a word beside it, is none."""
    for cell, value in (
        ("73.5", 73.5),
        (" 8 ", 8.0),
        ("-0.74", -0.74),
        ("1e-3", 0.001),
        ("1,234.5", 1234.5),
        ("1,234,567", 1234567.0),
        ("0", 0.0),
    ):
        with table_row(cell):
            assert number(cell) == value
    for cell, why in (
        ("1,234", "may be a thousand or a decimal"),
        ("1,5", "is not a number"),
        ("12,34.5", "is not a number"),
        ("-", "is not a number"),
        ("", "is not a number"),
        ("N/A", "is not a number"),
        ("None", "is not a number"),
        ("nan", "is not a number"),
        ("inf", "is not a number"),
        ("1e999", "is too large"),
        ("~35", "is not a number"),
        ("<35", "is not a number"),
        ("35 (INT8)", "is not a number"),
        ("30.6(INT8)", "is not a number"),
        ("35 ms", "is not a number alone"),
        ("10-12", "is not a number"),
        ("10 ± 2", "is not a number"),
        ("1_000", "is not a number"),
        ("\N{ARABIC-INDIC DIGIT THREE}", "is not a number$"),
    ):
        with table_row(cell), pytest.raises(ValueError, match=why):
            number(cell)


def test_a_quantity_has_its_unit_behind_it():
    """With or without a space."""
    for cell, expected in (
        ("3.28s", (3.28, "s")),
        ("632.6 ms", (632.6, "ms")),
        ("57.73tokens/s", (57.73, "tokens/s")),
        ("12%", (12.0, "%")),
        ("7", (7.0, "")),
    ):
        with table_row(cell):
            assert quantity(cell) == expected
