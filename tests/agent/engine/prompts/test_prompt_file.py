"""Facts about files of prompts: which forms are read, what is asked of a choice, and what is refused in one line."""

import hashlib
import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.engine.prompts.prompt_file import read_prompts
from edgemeter.agent.generators import ChatMessage
from edgemeter.agent.quality.answer_key import AnswerKey
from tests.fixtures.rows import table_row


def written(folder, *entries, name="prompts.jsonl"):
    """Write JSON Lines and return their path."""
    path = folder / name
    path.write_text("\n".join(map(json.dumps, entries)))
    return str(path)


def test_prompts_messages_and_conversations_are_read(tmp_path):
    """A request ends with the user's last message, of a conversation that was recorded with the first."""
    system, first, answer, last = ("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi."), ("user", "And now?")
    file = read_prompts(
        written(
            tmp_path,
            {"prompt": "One"},
            {"messages": [{"role": role, "content": text} for role, text in (system, first, answer, last)], "id": "chat"},
            {"conversations": [{"from": "human", "value": "Two"}, {"from": "gpt", "value": "2"}, {"from": "human", "value": "Three"}]},
        )
    )
    assert [item.messages for item in file.items] == [
        (ChatMessage("user", "One"),),
        tuple(ChatMessage(*message) for message in (system, first, answer, last)),
        (ChatMessage("user", "Two"),),
    ]
    assert [item.name for item in file.items] == ["1", "chat", "3"]
    assert not file.has_answers


def test_lines_of_a_text_are_prompts(tmp_path):
    """Empty ones are none; the hash is that of the file, as sha256sum gives it."""
    path = tmp_path / "prompts.txt"
    path.write_bytes("Größe?\n\n  \nWeight?\n".encode())
    file = read_prompts(str(path))
    assert [item.messages[0].text for item in file.items] == ["Größe?", "Weight?"]
    assert file.file_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_right_answers_are_texts_numbers_or_choices(tmp_path):
    """Choices stand in the prompt, and their letter is what is right."""
    question = {"prompt": "Which is a city?", "choices": ["Seine", "Paris"]}
    file = read_prompts(
        written(
            tmp_path,
            {"prompt": "6*7", "answer": 42},
            {"prompt": "P", "answers": ["a", "b"]},
            question | {"answer": 1},
            question | {"answer": "A"},
        )
    )
    assert [item.key for item in file.items] == [AnswerKey(("42",)), AnswerKey(("a", "b")), AnswerKey(("B",), 2), AnswerKey(("A",), 2)]
    assert file.items[2].messages[0].text == "Which is a city?\n\nA. Seine\nB. Paris\n\nAnswer with the letter of the right choice."
    assert file.has_answers


def test_a_subset_is_drawn_by_its_seed_and_has_a_hash_of_its_own(tmp_path):
    """The same draw everywhere; a subset asks other questions than all."""
    path = written(tmp_path, *({"prompt": f"Number {number}"} for number in range(50)))
    file, subset = read_prompts(path), read_prompts(path, 10, 3)
    assert [item.name for item in subset.items] == [item.name for item in read_prompts(path, 10, 3).items]
    assert len({item.name for item in subset.items}) == 10
    assert subset.sha256 != file.sha256
    assert subset.file_sha256 == file.file_sha256


def test_what_is_no_prompt_is_named(tmp_path):
    """With the entry, and what to give instead."""
    for entry, message in [
        ({"prompt": 3}, r"line 1: Expected `str \| null`"),
        ({"id": "x"}, "prompt 'x' holds no text of a user"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "a message of 'tool'"),
        ({"prompt": "P", "choices": ["a", "b"], "answer": "C"}, "has no choice 'C'"),
    ]:
        with table_row(entry), pytest.raises(ConfigError, match=message):
            read_prompts(written(tmp_path, entry))
    # An empty file, and none at all.
    with pytest.raises(ConfigError, match="holds no prompt"):
        read_prompts(written(tmp_path))
    with pytest.raises(ConfigError, match=r"there are no prompts 'nowhere.jsonl'"):
        read_prompts("nowhere.jsonl")
