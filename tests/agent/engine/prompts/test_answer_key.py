"""Right answers are found in what a model writes: texts, numbers and letters of choices."""

import pytest

from edgemeter.agent.engine.prompts.answer_key import AnswerKey


@pytest.mark.parametrize(
    ("rule", "answers", "answer", "is_right"),
    [
        ("squad", ("Paris",), "Paris.", True),
        ("squad", ("Paris",), " the paris\nIt lies on the Seine.", True),
        ("squad", ("Paris",), "The capital of France is Paris.", False),
        ("squad", ("Paris", "Lutetia"), "lutetia", True),
        ("squad", ("Paris",), "<think>London? No.</think>\n\nParis", True),
        ("squad", ("Paris",), "Okay, the user</think>Paris", True),
        ("squad", ("Paris",), "Paris</think>", False),
        ("squad", ("Paris",), "\n<think>\nParis", False),
        ("squad", (), "", True),
        ("squad", (), "Nobody", False),
        ("number", ("42",), "6 times 7 is 42.", True),
        ("number", ("42",), "42 is 6 times 7", False),
        ("number", ("1200",), "They cost $1,200.00 in all", True),
        ("number", ("-3.5",), "It is -3.5 degrees", True),
        ("number", ("3.5",), "It is -3.5 degrees", False),
        ("number", ("7",), "seven", False),
        ("number", ("0.5",), "the half: .5", True),
    ],
)
def test_a_short_text_has_to_match_by_squads_rule_and_of_numbers_the_last_counts(
    rule, answers, answer, is_right
):
    """Of a text the first line counts, without case, articles and punctuation.

    If no answer is right, nothing is the right answer. Of numbers the last counts, since arithmetic
    comes with its steps; thousands may have commas, and zeros after the point change nothing.
    """
    key = AnswerKey(answers)
    assert key.rule == rule
    assert key.accepts(answer) is is_right


def test_of_choices_the_letter_is_found():
    """The first letter that stands alone counts, after the word "answer" if that is present.

    An article is no letter, nor is a letter that has no choice.
    """
    key = AnswerKey(("B",), choices=4)
    assert key.rule == "letter"
    for answer in (
        "B", "(B) Paris", "**B.** Paris", "The answer is B.", "A good answer: B",
        "A city in France, so B", "I think B", "Not A. The answer is B because C is wrong",
        "Option B is right, A is not",
    ):  # fmt: skip
        assert key.accepts(answer), answer
    for answer in (
        "C. London, not B", "The correct answer is A because B is wrong", "Option A is correct.",
        "A is right, not B", "F", "Paris", "",
    ):  # fmt: skip
        assert not key.accepts(answer), answer
