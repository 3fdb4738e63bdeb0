"""Facts about the reader of Hugging Face `evaluate`: what `evaluate.save` of release 0.4.6 wrote of made-up scores."""

import json
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import create, table_file

FILE = Path(__file__).parents[3] / "fixtures" / "published" / "hf_evaluate.json"
DEFAULTS = {"source": "A bench", "version": "1", "date": "2026-11-26", "address": "https://example.org/bench", "device": "Board"}


def changed(**changes):
    """Return what is read of the file with other fields; None takes one away."""
    saved = json.loads(FILE.read_text()) | changes
    return create("hf_evaluate").read(json.dumps({name: value for name, value in saved.items() if value is not None}), DEFAULTS)


def test_scores_over_a_stated_number_of_items_are_rows():
    """With the parameters that the writer added."""
    table = table_file.read_any(FILE, None, DEFAULTS)
    scores = {row.accuracy_metric: (row.value, row.images) for row in table.rows if row.figure == "accuracy"}
    assert scores == {"accuracy": (0.8375, 400), "f1": (0.8312, 400), "precision": (0.85, 400), "recall": (0.81, 400)}
    row = table.rows[0]
    assert (row.model, row.dataset, row.batch, row.software) == ("tiny-sentiment", "notes", 1, "evaluate 0.4.6")
    assert row.conditions == "evaluate 0.4.6, notes"


def test_the_times_of_an_evaluator_are_rows():
    """A mean latency in seconds, and a rate."""
    times = {row.figure: (row.canonical, row.statistic, row.count) for row in changed().rows if row.figure != "accuracy"}
    assert times == {"latency-mean": ((31.25, "ms"), "mean", 400), "throughput": ((32.0, "per s"), None, 400)}


def test_what_is_no_share_of_items_is_named():
    """A BLEU is no accuracy; a total time is no figure of an inference."""
    assert changed().left_out == tuple(
        f"{name}: not known as a score that is a share of items" for name in ("total_time_in_seconds", "bleu")
    )


def test_without_a_number_of_items_no_score_is_a_row():
    """It is stated by who saved the file, or not at all: it is not worked out of times."""
    table = changed(num_samples=None)
    assert {row.figure for row in table.rows} == {"latency-mean", "throughput"}
    assert any(line.startswith("accuracy: it states no number of items (num_samples") for line in table.left_out)


def test_a_score_in_percent_is_left_out():
    """Some metrics of the library are, without a unit: it is not guessed."""
    table = changed(exact_match=81.5)
    assert any(line.startswith("exact_match: an accuracy of 81.5 ratio is above 1") for line in table.left_out)


@pytest.mark.parametrize("score", ["high", None, [0.1], float("inf")])
def test_a_score_that_is_no_number_is_left_out(score):
    """The others are read."""
    table = create("hf_evaluate").read(json.dumps({"accuracy": score, "f1": 0.5, "num_samples": 200, "model": "m"}), DEFAULTS)
    assert [row.accuracy_metric for row in table.rows] == ["f1"]
    assert table.left_out[0].startswith("accuracy: ")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000])
def test_a_damaged_file_is_one_clear_error(text):
    """It names the function that writes such files."""
    with pytest.raises(ConfigError, match=r"evaluate\.save"):
        create("hf_evaluate").read(text, DEFAULTS)


def test_other_json_is_not_recognised():
    """Its mark is the version of the library."""
    reader = create("hf_evaluate")
    assert reader.recognises("result-2026.json", FILE.read_text())
    assert not reader.recognises("result.json", '{"accuracy": 0.5}')


def test_a_name_that_comes_twice_is_refused():
    """Nobody knows which of the two scores counts."""
    with pytest.raises(ConfigError, match="the name 'accuracy' stands twice"):
        create("hf_evaluate").read(
            '{"_evaluate_version": "1", "accuracy": 0.5, "accuracy": 0.9, "num_samples": 200, "model": "m"}', DEFAULTS
        )
