"""Typos: seeded, more with every severity, at the stated rates, and each what its name says."""

import re
from collections import Counter

import pytest

from edgemeter.agent.contract.case_settings import CORRUPTIONS
from edgemeter.agent.text.typos import RATES, with_typos
from tests.fixtures.rows import table_row

TEXT = "The quick brown fox jumps over 12 lazy dogs, isn't it? Größe zählt. " * 40
LETTERS = len(re.findall(r"[^\W\d_]", TEXT))
PINNED_SWAP = "teh rbown fox jmups over lazy dogs"
PINNED_DROP = "the brown ox jumps over azy s"


@pytest.mark.parametrize("name", CORRUPTIONS["text"])
def test_typos_are_drawn_by_seed_and_text(name):
    """The same again; another seed or another text draws others."""
    assert with_typos(TEXT, name, 3, 0, "a") == with_typos(TEXT, name, 3, 0, "a") != TEXT
    assert len({with_typos(TEXT, name, 3, seed, identity) for seed, identity in ((0, "a"), (1, "a"), (0, "b"))}) == 3


def test_letters_are_dropped_at_the_stated_rate():
    """Of those that are not the last of their word; every word stays, and so does all that is no letter."""
    for severity in range(1, 6):
        with table_row(severity):
            typos = with_typos(TEXT, "character_drop", severity, 0, "a")
            words = re.findall(r"[^\W\d_]+", TEXT)
            expected = RATES[severity - 1] * (LETTERS - len(words))
            assert len(TEXT) - len(typos) == pytest.approx(expected, abs=4 * expected**0.5)
            assert len(re.findall(r"[^\W\d_]+", typos)) == len(words)
            assert re.sub(r"[^\W\d_]", "", typos) == re.sub(r"[^\W\d_]", "", TEXT)


def test_neighbours_are_swapped_within_words():
    """All letters are still there, word by word, and more places differ with every severity."""
    for severity in range(1, 6):
        typos = with_typos(TEXT, "character_swap", severity, 0, "a")
        assert [Counter(word) for word in typos.split()] == [Counter(word) for word in TEXT.split()], f"{severity!r}"
        moved = sum(letter != other for letter, other in zip(typos, TEXT, strict=True)) / 2
        assert moved == pytest.approx(RATES[severity - 1] * (LETTERS - len(TEXT.split())), rel=0.35), f"{severity!r}"


def test_the_draws_are_pinned():
    """Two machines of any year put the same typos into the same text."""
    assert with_typos("the brown fox jumps over lazy dogs", "character_swap", 5, 7, "x") == PINNED_SWAP
    assert with_typos("the brown fox jumps over lazy dogs", "character_drop", 5, 7, "x") == PINNED_DROP
