"""Extractive question answering: SQuAD's scores as its official scripts compute them, and the best span over all windows."""

import json
import re
import string
from collections import Counter

import numpy as np
import pytest

from edgemeter.agent import tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import read_card
from edgemeter.agent.datasets.dataset import open_folder
from tests.fixtures.rows import table_row
from tests.fixtures.text_data import place_model
from tests.fixtures.vision_factory import make_loaded, tensors

pytest.importorskip("tokenizers", reason="needs the extra `text`")
PASSAGE = "tea is red and it was blue then a dog"
TOKENS = 12


def make_task(folder, qas, passage=PASSAGE, outputs=("start", "end"), text_settings="stride_tokens = 3\n"):
    """Return the task of a model of twelve tokens on questions about one passage."""
    path = folder / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": passage, "qas": qas}]}]}))
    model = place_model(folder, "question-answering.onnx", TOKENS, text_settings)
    card = read_card(model.with_name(f"{model.name}.toml")).beside(model)
    names = ("input_ids", "attention_mask", "token_type_ids")
    shapes = [(1, TOKENS, 2)] if len(outputs) == 1 else [(1, TOKENS)] * 2
    return tasks.create(
        card, make_loaded(tensors(*shapes, names=outputs), tensors(*[(1, TOKENS)] * 3, names=names, dtype="int64")), open_folder(path)
    )


def question(*answers, number="q", impossible=None):
    """Return a question in SQuAD's form."""
    settings = {} if impossible is None else {"is_impossible": impossible}
    return {"id": number, "question": "which colour?", "answers": [{"text": text, "answer_start": 0} for text in answers], **settings}


def scores(calls, *marked, first=0.0):
    """Return start and end scores of all calls: 0, `first` at the first token, and (call, start, end, score) for each marked."""
    pairs = [(np.zeros((1, TOKENS), np.float32), np.zeros((1, TOKENS), np.float32)) for _ in range(calls)]
    for starts, ends in pairs:
        starts[0, 0] = ends[0, 0] = first
    for call, start, end, score in marked:
        pairs[call][0][0, start] = pairs[call][1][0, end] = score
    return pairs


def official_scores(prediction, answers):
    """Return exact match and F1 as evaluate-v1.1.py defines them."""

    def normal(text):
        text = "".join(c for c in text.lower() if c not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())

    def f1(text, other):
        text, other = normal(text).split(), normal(other).split()
        same = sum((Counter(text) & Counter(other)).values())
        if not same:
            return 0.0
        precision, recall = same / len(text), same / len(other)
        return 2 * precision * recall / (precision + recall)

    return max(normal(prediction) == normal(text) for text in answers), max(f1(prediction, text) for text in answers)


def test_an_answer_is_scored_as_the_official_script_does(tmp_path):
    """The best of the right answers; articles, punctuation and capitals play no part."""
    for answers in [("The Red!",), ("is red and", "blue"), ("dog",), ("red", "red and it")]:
        with table_row(answers):
            task = make_task(tmp_path, [question(*answers)])
            calls = task.prepare(0)
            # [CLS] which colour ? [SEP] tea is red ...: token 7 is "red".
            task.predict(0, scores(len(calls), (0, 7, 7, 5.0)))
            accuracy = task.score()
            exact, f1 = official_scores("red", answers)
            assert (accuracy.metric, accuracy.value, accuracy.detail) == ("squad_f1", pytest.approx(f1), {"exact_match": exact})


def answer(task, calls):
    """Return what the task answers."""
    task.prepare(0)
    task.predict(0, calls)
    return task._predictions[0]


def test_the_best_span_of_all_windows_wins_where_it_sees_most_around_it(tmp_path):
    """Six tokens a window, three apart: `blue` is the last of the first window and has more around it in the second."""
    task = make_task(tmp_path, [question("blue")])
    windows = len(task.prepare(0))
    places = [[PASSAGE[span[0] : span[1]] if span else None for span in window.offsets] for window in task._windows[0]]
    assert windows == 3
    assert places[0][5:11] == ["tea", "is", "red", "and", "it", "was"]
    assert places[1][5:11] == ["and", "it", "was", "blue", "then", "a"]
    assert answer(task, scores(windows, (0, 7, 7, 2.0), (1, 8, 8, 3.0))) == "blue"
    # `was` sees more around it in the second window: its start does not count in the first.
    calls = scores(windows, (1, 8, 8, 3.0))
    calls[0][0][0, 10] = 9
    assert answer(task, calls) == "blue"
    assert answer(task, scores(windows, (0, 6, 9, 2.0))) == "is red and it"


def test_spans_outside_the_passage_or_backwards_are_no_answers(tmp_path):
    """Question, separators, padding: the weaker span that is one wins."""
    for start, end in [(1, 2), (4, 6), (8, 6), (0, 7), (11, 11)]:
        with table_row(start, end):
            task = make_task(tmp_path, [question("red")])
            windows = len(task.prepare(0))
            calls = scores(windows, (0, 7, 7, 1.0))
            calls[0][0][0, start] += 9
            calls[0][1][0, end] += 9
            text = answer(task, calls)
            assert text in PASSAGE
            assert text


def test_an_answer_is_at_most_as_long_as_the_card_allows(tmp_path):
    """Two tokens: the better one of three is left out."""
    task = make_task(tmp_path, [question("red")], text_settings="stride_tokens = 3\nanswer_tokens = 2\n")
    windows = len(task.prepare(0))
    calls = scores(windows)
    calls[0][0][0, 5], calls[0][1][0, 7], calls[0][1][0, 6] = 9, 9, 1
    assert answer(task, calls) == "tea is"


@pytest.mark.parametrize(("first", "expected"), [(1.0, "red"), (9.0, "")])
def test_no_answer_wins_only_where_one_may_be_missing(tmp_path, first, expected):
    """SQuAD 2.0: the first token's sum against the best span's; 1.1: never."""
    two = [question("red", impossible=False), question(number="r", impossible=True)]
    task = make_task(tmp_path, two)
    windows = len(task.prepare(0))
    assert answer(task, scores(windows, (0, 7, 7, 5.0), first=first)) == expected
    assert answer(make_task(tmp_path, two[:1]), scores(windows, (0, 7, 7, 5.0), first=first)) == "red"


def test_of_the_windows_that_see_no_answer_the_lowest_decides(tmp_path):
    """One window of three that finds the passage's answer is enough, however sure the others are."""
    task = make_task(tmp_path, [question("red", impossible=False), question(number="r", impossible=True)])
    windows = len(task.prepare(0))
    calls = scores(windows, (0, 7, 7, 5.0), first=9.0)
    calls[0][0][0, 0] = calls[0][1][0, 0] = 0
    assert answer(task, calls) == "red"


def test_questions_with_and_without_answer_are_scored_apart(tmp_path):
    """Three quarters: of answerable ones half, of others all."""
    qas = [question("red", number="a"), question("dog", number="b"), *(question(number=name, impossible=True) for name in "cd")]
    task = make_task(tmp_path, qas)
    for index in range(4):
        windows = len(task.prepare(index))
        task.predict(index, scores(windows, (0, 7, 7, 5.0), first=9.0 if index > 1 else 0.0))
    accuracy = task.score()
    assert (accuracy.value, accuracy.detail) == (0.75, {"exact_match": 0.75, "f1_has_answer": 0.5, "f1_no_answer": 1.0})


@pytest.mark.parametrize("outputs", [("end_logits", "start_logits"), ("both",)])
def test_starts_and_ends_are_recognised_by_name_or_stand_side_by_side(tmp_path, outputs):
    """MobileBERT's LiteRT file gives ends first; BERT's first script gave one tensor."""
    task = make_task(tmp_path, [question("is red and")], outputs=outputs)
    windows = len(task.prepare(0))
    calls = scores(windows)
    calls[0][0][0, 6], calls[0][1][0, 8] = 5, 5
    answers = [[end, start] if len(outputs) == 2 else [np.stack([start, end], -1)] for start, end in calls]
    assert answer(task, answers) == "is red and"


def test_outputs_of_another_form_are_refused(tmp_path):
    """A classifier's scores have no places."""
    task = make_task(tmp_path, [question("red")])
    windows = len(task.prepare(0))
    with pytest.raises(ConfigError, match="not a start and an end score per token"):
        task.predict(0, [[np.zeros((1, 2), np.float32)] * 2] * windows)
