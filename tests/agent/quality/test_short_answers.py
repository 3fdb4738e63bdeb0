"""Exact match and F1 with SQuAD's normalisation."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.quality.short_answers import Question, f1, normalise, score_answers


def test_normalisation_is_squads():
    """Lower case, no ASCII punctuation, no articles, single spaces, in this order."""
    for text, expected in [
        ("The  Eiffel Tower!", "eiffel tower"),
        ("a.b", "ab"),
        ("An apple, a day", "apple day"),
        ("theatre", "theatre"),
        ("U.S.A.", "usa"),
        ("it's 3,000", "its 3000"),
        ("\u201cquoted\u201d", "\u201cquoted\u201d"),
        ("the", ""),
    ]:
        assert normalise(text) == expected, f"{text!r}"


def test_f1_is_of_bags_of_words():
    """By hand; two texts that are both empty are equal."""
    for answer, right, expected in [
        ("in the garden", "the garden", 2 / 3),  # 1 of 2 and 1 of 1
        ("red red blue", "red blue blue", 2 / 3),  # bags share one red and one blue
        ("cat", "dog", 0.0),
        ("", "dog", 0.0),
        ("the", "an", 1.0),
    ]:
        assert f1(answer, right) == pytest.approx(expected, abs=1e-12), f"{answer!r}, {right!r}"


def test_the_best_right_answer_counts():
    """The mean over questions of the maximum over right answers."""
    questions = [
        Question(id="1", prompt="?", answers=("The garden", "in the garden")),
        Question(id="2", prompt="?", answers=("red car", "car")),
        Question(id="3", prompt="?", answers=()),
    ]
    scores = score_answers(questions, ["In the garden.", "a blue car", ""])
    assert (scores.items, scores.exact_match) == (3, pytest.approx(2 / 3))
    assert scores.f1 == pytest.approx((1 + 2 / 3 + 1) / 3, abs=1e-12)


def test_no_question_has_no_score():
    """An empty list is refused, not scored as 0."""
    with pytest.raises(ConfigError, match="no questions"):
        score_answers([], [])
