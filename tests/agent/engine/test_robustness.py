"""Corruption of items of any kind: which corruptions fit the data, and what stands in for an item."""

from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.case_settings import CORRUPTIONS, corruption_names
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.items import Item
from edgemeter.agent.engine.robustness import robustness
from tests.fixtures.rows import table_row

CLEAN = Accuracy(metric="error", value=0.1, images=2, dataset_sha256="0" * 64, better="lower")
TEXTS = (Item("a", Path("all.tsv"), "text", "the quick brown fox " * 9, "as it was"), Item("b", Path("all.tsv"), "text", "jumps over " * 9))


class Letters:
    """A task whose error is the share of letters that are no longer in their place."""

    def __init__(self, items):
        self.items, self.wrong = items, []

    def predict(self, index):
        """Read the stand-in."""
        item, before = self.items[index], TEXTS[index].text
        assert (item.name, item.context, item.kind) == (TEXTS[index].name, TEXTS[index].context, "text")
        self.wrong.append(sum(letter != other for letter, other in zip(item.read_text(), before, strict=True)) / len(before))

    def score(self, parts):
        """Return the mean error."""
        assert parts == "value"
        return Accuracy(metric="error", value=sum(self.wrong) / 2, images=2, dataset_sha256="0" * 64, better="lower")


def found_with(items, names):
    """Return the robustness, and how the progress was told."""
    reports = []
    result = robustness(items, corruption_names(names), 0, CLEAN, Letters, Letters.predict, lambda *at: reports.append(at))
    return result, reports


def test_typos_stand_in_for_texts_and_an_error_that_grows_is_a_drop():
    """Five severities of swaps; the drop is positive where the error is larger than on clean data."""
    result, reports = found_with(TEXTS, ["character_swap"])
    (swap,) = result.corruptions
    assert swap.values[4] > swap.values[2] > swap.values[0] > 0
    assert result.drop_value == pytest.approx(result.mean_value - 0.1)
    assert reports == [(finished, 10) for finished in range(1, 11)]


def test_all_are_those_that_fit_the_data():
    """Of photographs ten, of texts two; a missing letter is none of the task's letters here."""
    assert corruption_names(["all"]) == tuple(name for names in CORRUPTIONS.values() for name in names)
    with pytest.raises(ValueError, match="zip"):
        found_with(TEXTS, ["all"])


def test_corruptions_of_another_kind_are_refused():
    """In one line that names the kind."""
    for items, names, match in [
        (TEXTS, ["gaussian_noise"], "'gaussian_noise' is not for items of kind text: choose from character_swap"),
        ((Item("a", Path("a.npy"), "tensor"),), ["all"], "kind tensor, corruptions are for one of image"),
        ((*TEXTS, Item("a", Path("a.png"), "image")), ["all"], "kind image, text"),
    ]:
        with table_row(names), pytest.raises(ConfigError, match=match):
            found_with(items, names)
