"""Multiple choice as lm-evaluation-harness scores it."""

import statistics

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.quality.multiple_choice import ChoiceItem, accuracies, encode_pair, score_choices, separately
from edgemeter.agent.quality.scoring import read_items
from tests.fixtures.rows import table_row


def item(*choices, answer=0, name="one"):
    """Return an item with these choices."""
    return ChoiceItem(id=name, prompt="The lamp is", choices=choices, answer=answer)


def by_words(text):
    """Return a token per word, which takes the space before it: its length."""
    return [len(word) for word in text.replace(" ", "\0 ").split("\0") if word]


def test_the_three_accuracies_divide_by_nothing_characters_and_bytes():
    """By hand: -6 over 2 characters or 6 bytes, -5 over 1 and 1, -10 over 5 and 5."""
    scores = accuracies([item("红蓝", "x", "green", answer=1)], [[-6.0, -5.0, -10.0]])
    assert (scores.acc, scores.acc_norm, scores.acc_bytes) == (1.0, 0.0, 0.0)
    assert accuracies([item("红蓝", "x", "green", answer=2)], [[-6.0, -5.0, -10.0]]).acc_norm == 1.0
    assert accuracies([item("红蓝", "x", "green", answer=0)], [[-6.0, -5.0, -10.0]]).acc_bytes == 1.0


def test_the_standard_error_is_the_sample_deviations():
    """Against Python's statistics: the deviation of ones and zeros over the root of their number; of one item there is none."""
    hits = [1, 0, 1, 1, 0]
    scores = accuracies([item("a", "b", answer=1 - hit) for hit in hits], [[-1.0, -2.0]] * 5)
    assert scores.acc == 0.6
    assert scores.acc_stderr == pytest.approx(statistics.stdev(hits) / 5**0.5, abs=1e-12)
    assert accuracies([item("a", "b")], [[-1.0, -2.0]]).acc_stderr is None


def test_the_first_of_equals_is_the_prediction():
    """As numpy's argmax, which the reference uses."""
    assert accuracies([item("a", "b", answer=0)], [[-1.0, -1.0]]).acc == 1.0


def test_prompt_and_choice_are_tokenised_together_and_split_afterwards():
    """Spaces at the end of the prompt go to the continuation, where tokenisers join them with the word."""
    assert encode_pair(by_words, "The lamp is  ", "on") == (by_words("The lamp is"), by_words("  on"))
    joined = {"ab": [5], "a": [1]}
    with pytest.raises(ConfigError, match="leaves nothing of 'b'"):
        encode_pair(joined.__getitem__, "a", "b")


def test_only_the_choices_tokens_count():
    """The model is asked with the beginning of text, prompt and choice; the prompt's own likelihood is left out."""
    prompts = []

    def likelihoods(tokens):
        prompts.append(list(tokens))
        return -np.arange(1.0, len(tokens))

    scores = score_choices([item("off", "on and on", answer=0)], by_words, separately(likelihoods), bos_token=99)
    assert prompts == [[99, 3, 5, 3, 4], [99, 3, 5, 3, 3, 4, 3]]
    assert scores.acc == 1.0  # -4 against -4 - 5 - 6
    assert scores.acc_norm == 1.0  # -4 / 3 against -15 / 9 = -1.67


def test_a_file_of_items_is_read(tmp_path):
    """Empty lines are skipped; the hash is of the items, not of the spacing."""
    line = '{"id": "1", "prompt": "p", "choices": ["a", "b"], "answer": 1}'
    (tmp_path / "items.jsonl").write_text(f"{line}\n\n{line.replace(' ', '')}\n")
    first, two = read_items(tmp_path / "items.jsonl", ChoiceItem)
    assert first == two
    assert accuracies([first], [[0, 1]]).items_sha256 == accuracies([two], [[1, 0]]).items_sha256


def test_a_wrong_file_is_one_line(tmp_path):
    """The error names file and line."""
    for content, match in [
        ("", "holds no item"),
        ("{", "line 1"),
        ('{"id": "1", "prompt": "p", "choices": ["a"], "answer": 0}', "at least two choices"),
        ('{"id": "1", "prompt": "", "choices": ["a", "b"], "answer": 0}', "needs a prompt"),
        ('{"id": "1", "prompt": "p", "choices": ["a", "b"], "answer": 2}', "no choice 2"),
        ("\n" + '{"id": "1", "prompt": "p", "choices": ["a", "b"]}', "line 2"),
    ]:
        with table_row(content):
            (tmp_path / "items.jsonl").write_text(content)
            with pytest.raises(ConfigError, match=match):
                read_items(tmp_path / "items.jsonl", ChoiceItem)
            with pytest.raises(ConfigError, match="cannot read"):
                read_items(tmp_path / "absent.jsonl", ChoiceItem)
