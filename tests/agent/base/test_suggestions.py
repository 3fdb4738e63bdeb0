"""The known words that a word may have meant."""

import pytest

from edgemeter.agent.base.suggestions import did_you_mean, near


@pytest.mark.parametrize(
    ("word", "known_words", "meant"),
    [
        ("modle", ("mode", "model", "models"), "model"),
        ("sotp", ("so", "stop", "spot"), "stop"),
        ("THREAD", ("threads", "read"), "threads"),
        ("fleets", ("fleet", "feet"), "fleet"),
    ],
)
def test_the_nearest_word_is_suggested(word, known_words, meant):
    """Two swapped letters are one slip, as one letter too many is."""
    assert (
        near(word, known_words)
        == did_you_mean(word, known_words, limit=1)
        == f"did you mean {meant}?"
    )


def test_where_no_word_resembles_it_there_is_a_list():
    """The list has all known words if they are few, else the most similar ones."""
    assert did_you_mean("xyz", ("mode", "model")) is None
    assert near("xyz", ("mode", "model")) == "there are mode, model"
    assert near("xyz", [f"word{number}" for number in range(20)]).startswith(
        "the most similar of 20 are word"
    )
