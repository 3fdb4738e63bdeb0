"""Which of several int8 files is the best, by what its verdict goes by."""

from pathlib import Path

from edgemeter.models.convert.agreement import ConversionVerdict
from edgemeter.models.convert.onnx_quantise import Int8Recipe
from edgemeter.models.convert.parity import Parity
from edgemeter.models.convert.recipe_choice import RecipeAttempt
from tests.fixtures.model_agreement import agreement
from tests.fixtures.record_factory import make_accuracy


def score(accuracy, **settings):
    """Return the score of an attempt with this accuracy and agreement."""
    result = Parity(ConversionVerdict("ruined", "much is lost"), agreement(**settings), None, accuracy, ("a 1", "b 2"))
    return RecipeAttempt(Int8Recipe(), Path("int8.onnx"), {}, result).score


def test_the_better_accuracy_is_that_in_the_direction_of_its_metric():
    """A depth's error is lower where it is better."""
    for better, good, bad in (("higher", 0.3, 0.1), ("lower", 0.1, 0.3)):
        good_score, bad_score = (score(make_accuracy(value=value, better=better)) for value in (good, bad))
        assert good_score > bad_score, better


def test_a_collapsed_file_is_worse_than_one_that_follows():
    """Whatever it has in common with the source by chance."""
    assert score(None, same=0.1) > score(None, same=0.5, variation="collapsed")
    assert score(None, same=0.1) > score(make_accuracy(value=0.9), not_finite=1)
    assert score(None, same=0.4) > score(None, same=0.3)
