"""Facts about files of questions: what is asked, what is right, and what is refused in one line."""

import hashlib
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.engine.prompts.answer_key import AnswerKey
from edgemeter.agent.engine.prompts.questions import read_questions
from tests.fixtures.questions import write_questions
from tests.fixtures.rows import table_row


def test_right_answers_are_texts_numbers_or_choices(tmp_path):
    """Choices stand in the prompt, and the letter of the right one is the answer."""
    question = {"prompt": "Which is a city?", "choices": ["Seine", "Paris"]}
    file = read_questions(
        write_questions(
            tmp_path,
            {"prompt": "6*7", "answer": 42},
            {"prompt": "P", "answers": ["a", "b"]},
            question | {"answer": 1},
            question | {"answer": "A"},
        )
    )
    keys = [question.key for question in file.questions]
    assert keys == [
        AnswerKey(("42",)),
        AnswerKey(("a", "b")),
        AnswerKey(("B",), 2),
        AnswerKey(("A",), 2),
    ]
    assert (
        file.questions[2].text
        == "Which is a city?\n\nA. Seine\nB. Paris\n\nAnswer with the letter of the right choice."
    )


def test_a_subset_is_drawn_by_its_seed_and_has_a_hash_of_its_own(tmp_path):
    """The draw is the same everywhere, and a subset asks other questions than the whole file.

    The file's hash is the one that sha256sum gives.
    """
    path = write_questions(
        tmp_path, *({"prompt": f"Number {number}", "answer": number} for number in range(50))
    )
    file, subset = read_questions(path), read_questions(path, 10, 3)
    assert subset == read_questions(path, 10, 3)
    assert len(set(subset.questions)) == 10
    assert subset.sha256 != file.sha256
    assert (
        subset.file_sha256
        == file.file_sha256
        == hashlib.sha256(Path(path).read_bytes()).hexdigest()
    )


def test_what_is_no_question_is_named(tmp_path):
    """The error states the line and what to give instead."""
    for entry, message in [
        ({"prompt": 3, "answer": 3}, r"line 1: Expected `str`"),
        ({"prompt": " ", "answer": 3}, "line 1: the prompt is empty"),
        ({"prompt": "P"}, "line 1: there is no right answer"),
        ({"prompt": "P", "choices": ["a", "b"], "answer": "C"}, "there is no choice 'C'"),
    ]:
        with table_row(entry), pytest.raises(ConfigError, match=message):
            read_questions(write_questions(tmp_path, entry))
    # An empty file, and none at all.
    with pytest.raises(ConfigError, match="holds no question"):
        read_questions(write_questions(tmp_path))
    with pytest.raises(ConfigError, match=r"there are no questions 'nowhere.jsonl'"):
        read_questions("nowhere.jsonl")
