"""Right answers are found in what a model writes: texts, numbers and letters of choices."""

from edgemeter.agent.engine.prompts.answer_key import AnswerKey
from tests.fixtures.rows import table_row


def test_a_short_text_has_to_match_by_squads_rule():
    """The first line counts, without case, articles and punctuation.

    If no answer is right, nothing is the right answer.
    """
    for answers, answer, is_right in [
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
    ]:
        with table_row(answer):
            key = AnswerKey(answers)
            assert key.rule == "squad"
            assert key.accepts(answer) is is_right


def test_of_numbers_the_last_counts():
    """The last number counts, since arithmetic comes with its steps.

    Thousands may have commas, and zeros after the point change nothing.
    """
    for right, answer, is_right in [
        ("42", "6 times 7 is 42.", True),
        ("42", "42 is 6 times 7", False),
        ("1200", "They cost $1,200.00 in all", True),
        ("-3.5", "It is -3.5 degrees", True),
        ("3.5", "It is -3.5 degrees", False),
        ("7", "seven", False),
        ("0.5", "the half: .5", True),
    ]:
        with table_row(answer):
            key = AnswerKey((right,))
            assert key.rule == "number"
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
