"""Facts about the reader of lm-evaluation-harness: its results of a served model, with a second task and a group in the same shape."""

import json
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import create, table_file
from edgemeter.collector.published.row import too_few_items

FILE = Path(__file__).parents[3] / "fixtures" / "published" / "lm_eval.json"
DEFAULTS = {"source": "A bench", "version": "1", "date": "2026-11-26", "address": "https://example.org/bench", "device": "Board"}


def changed(**changes):
    """Return what is read of the results with other fields."""
    return create("lm_eval").read(json.dumps(json.loads(FILE.read_text()) | changes), DEFAULTS)


def test_each_share_of_a_task_is_a_row_with_its_items():
    """With its standard error, of the items that were asked and not of all that the task has."""
    table = table_file.read_any(FILE, None, DEFAULTS)
    read = {row.accuracy_metric: (row.dataset, row.value, row.standard_error, row.images) for row in table.rows}
    assert read == {
        "exact_match,stripped": ("notes_questions", 0.925, 0.0422, 40),
        "acc,none": ("notes_choices", 0.775, 0.0383, 120),
        "acc_norm,none": ("notes_choices", 0.7917, 0.0372, 120),
    }
    assert {row.figure for row in table.rows} == {"accuracy"}
    assert too_few_items(table.rows[0])
    assert too_few_items(table.rows[1]) is None


def test_a_row_has_the_conditions_of_its_task():
    """Version, shots and filter; `device` is the program's default of a server, and no fact."""
    first, second, _ = changed().rows
    assert first.conditions == "notes_questions version 1.0, 0-shot, filter stripped"
    assert second.conditions == "notes_choices version 2.0, 5-shot, 120 of 1200 items"
    assert (first.model, first.runtime, first.software, first.batch) == (
        "edgemeter-notes_q8_0",
        "local-completions",
        "lm-evaluation-harness 0.4.13",
        1,
    )
    assert (first.backend, first.precision, first.parameters) == (None, None, None)


def test_what_is_no_share_of_items_is_named():
    """A perplexity, and a group, which states no number of items."""
    assert changed().left_out == (
        "notes_choices, word_perplexity,none: 'word_perplexity' is not known as a share of items",
        "notes, acc,none: a group of tasks",
    )


def test_a_model_in_the_process_has_its_type_and_device():
    """As `--model hf` states them."""
    config = {"model": "hf", "model_dtype": "torch.bfloat16", "model_num_parameters": 134515008, "batch_size": "auto", "device": "cpu"}
    row = changed(config=config, model_name="HuggingFaceTB/SmolLM2-135M").rows[0]
    assert (row.precision, row.parameters, row.backend, row.batch) == ("bfloat16", 134515008, "cpu", None)
    assert (row.model, row.software) == ("HuggingFaceTB/SmolLM2-135M", "lm-evaluation-harness 0.4.13")


@pytest.mark.parametrize(("value", "reason"), [(float("nan"), "not a number above 0"), (0.0, "not a number above 0"), (77.5, "is above 1")])
def test_a_score_that_is_no_ratio_is_left_out(value, reason):
    """With its place and the reason."""
    table = changed(results={"notes_choices": {"acc,none": value}})
    assert table.rows == ()
    assert table.left_out[0].startswith("notes_choices, acc,none: ")
    assert reason in table.left_out[0]


def test_a_task_without_a_number_of_items_is_left_out():
    """Older releases wrote none."""
    table = changed(**{"n-samples": {}})
    assert table.rows == ()
    assert "notes_questions, exact_match,stripped: it states no number of items" in table.left_out


@pytest.mark.parametrize("text", ["", "[]", "{", '{"results": 3}', '{"results": {"a": 1}}', "[" * 100_000])
def test_damaged_results_are_one_clear_error(text):
    """It says what to give."""
    with pytest.raises(ConfigError, match=r"this (is no file of lm-evaluation-harness|holds no score).*give a results_"):
        create("lm_eval").read(text, DEFAULTS)


def test_other_json_is_not_recognised():
    """Results without versions and shots are another program's."""
    reader = create("lm_eval")
    assert reader.recognises("results_2026.json", FILE.read_text())
    assert not reader.recognises("results.json", '{"results": {}}')
