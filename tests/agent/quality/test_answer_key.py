"""Facts about right answers: texts, numbers and the letters of choices are found in what a model writes."""

import pytest

from edgemeter.agent.quality.answer_key import AnswerKey


@pytest.mark.parametrize(
    ("answers", "answer", "is_right"),
    [
        (("Paris",), "Paris.", True),
        (("Paris",), " the paris\nIt lies on the Seine.", True),
        (("Paris",), "The capital of France is Paris.", False),
        (("Paris", "Lutetia"), "lutetia", True),
        (("Paris",), "<think>London? No.</think>\n\nParis", True),
        (("Paris",), "Okay, the user</think>Paris", True),
        (("Paris",), "Paris</think>", False),
        (("Paris",), "\n<think>\nParis", False),
        ((), "", True),
        ((), "Nobody", False),
    ],
)
def test_a_short_text_has_to_match_by_squads_rule(answers, answer, is_right):
    """The first line counts, without case, articles and punctuation; none of the answers right means that nothing is."""
    key = AnswerKey(answers)
    assert key.rule == "squad"
    assert key.accepts(answer) is is_right


@pytest.mark.parametrize(
    ("right", "answer", "is_right"),
    [
        ("42", "6 times 7 is 42.", True),
        ("42", "42 is 6 times 7", False),
        ("1200", "They cost $1,200.00 in all", True),
        ("-3.5", "It is -3.5 degrees", True),
        ("3.5", "It is -3.5 degrees", False),
        ("7", "seven", False),
        ("0.5", "the half: .5", True),
    ],
)
def test_of_numbers_the_last_counts(right, answer, is_right):
    """As in arithmetic with its steps; thousands may have commas, and zeros behind the point change nothing."""
    key = AnswerKey((right,))
    assert key.rule == "number"
    assert key.accepts(answer) is is_right


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("B", True),
        ("(B) Paris", True),
        ("**B.** Paris", True),
        ("The answer is B.", True),
        ("A good answer: B", True),
        ("A city in France, so B", True),
        ("C. London, not B", False),
        ("Not A. The answer is B because C is wrong", True),
        ("The correct answer is A because B is wrong", False),
        ("I think B", True),
        ("Option B is right, A is not", True),
        ("Option A is correct.", False),
        ("A is right, not B", False),
        ("F", False),
        ("Paris", False),
        ("", False),
    ],
)
def test_of_choices_the_letter_is_found(answer, is_right):
    """The first that stands by itself, behind the word answer if it is there; an article is no letter, nor is one without a choice."""
    key = AnswerKey(("B",), choices=4)
    assert key.rule == "letter"
    assert key.accepts(answer) is is_right
