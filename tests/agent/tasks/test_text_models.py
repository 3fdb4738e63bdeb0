"""Tiny encoders that were really trained, through the whole product: ONNX Runtime and LiteRT, clean, with typos, at two lengths."""

import json
import subprocess
import sys

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.contract.suite import SuiteFile, expand
from edgemeter.agent.engine import job, loading
from edgemeter.agent.engine.predictions import score_untimed
from edgemeter.agent.engine.scenarios.scenario import join_batch
from tests.fixtures.text_data import moods, place_model, questions, squad, sst2

pytest.importorskip("tokenizers", reason="needs the extra `text`")
RUNTIMES = {".onnx": "onnxruntime", ".tflite": "ai_edge_litert"}


def scored(folder, name, data, corrupt=(), tokens=24, text_settings=""):
    """Return the accuracy of an encoder on a file of data, through its runtime."""
    pytest.importorskip(RUNTIMES[name[name.index(".") :]])
    place_model(folder, name, tokens, text_settings)
    suite = f'name = "text"\n[[case]]\nmodel = "{name}"\ndata = "{data.name}"\ncorrupt = {json.dumps(list(corrupt))}\n'
    (folder / "suite.toml").write_text(suite)
    (case,) = expand(read_toml(folder / "suite.toml", SuiteFile, "suite"), folder).cases
    work = job.RunJob(case=case, sha256="0" * 64, size_bytes=1, seed=0, accuracy=True, idle=False, spawned_ns=0)
    return score_untimed(work, lambda _event: None).accuracy


@pytest.fixture
def sentences(tmp_path):
    """Return 200 sentences in SST-2's form, a tenth of them with the wrong class."""
    path = tmp_path / "dev.tsv"
    path.write_text(sst2(moods(200, 1)))
    return path


@pytest.fixture
def passages(tmp_path):
    """Return questions about passages of up to sixty words: several windows each."""
    path = tmp_path / "dev.json"
    path.write_text(squad(questions(120, 2, 60)))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("suffix", RUNTIMES)
def test_a_classifier_of_texts_knows_what_it_learnt_and_typos_cost_accuracy(tmp_path, sentences, suffix):
    """Nine in ten is all that can be right; the figure falls with every severity that a hundred texts can tell."""
    accuracy = scored(tmp_path, f"text-classification{suffix}", sentences, ["all"])
    assert (accuracy.metric, accuracy.images) == ("accuracy", 200)
    assert 0.85 <= accuracy.value <= 0.93
    assert [corruption.name for corruption in accuracy.robustness.corruptions] == ["character_swap", "character_drop"]
    assert all(accuracy.value > corruption.values[2] > corruption.values[4] for corruption in accuracy.robustness.corruptions)
    assert accuracy.robustness.drop_value > 0.1
    assert sum(group.images for group in accuracy.groups) == 200
    assert sum(group.images * group.value for group in accuracy.groups) == pytest.approx(200 * accuracy.value)


@pytest.mark.parametrize("suffix", RUNTIMES)
def test_questions_about_long_passages_are_answered_over_several_windows(tmp_path, passages, suffix):
    """With 24 tokens a call, eight apart; what lies behind the first window is found."""
    accuracy = scored(tmp_path, f"question-answering{suffix}", passages, text_settings="stride_tokens = 8\n")
    assert accuracy.metric == "squad_f1"
    assert accuracy.detail["f1_has_answer"] > 0.9
    assert accuracy.detail["exact_match"] > 0.6


def test_both_runtimes_give_the_same_figures(tmp_path, sentences, passages):
    """One trained module in two forms: int64 and open on one side, int32 and 24 tokens on the other."""
    for name, data in (("text-classification", sentences), ("question-answering", passages)):
        first, other = (scored(tmp_path, name + suffix, data) for suffix in RUNTIMES)
        assert first.value == pytest.approx(other.value, abs=0.01)


@pytest.mark.slow
def test_typos_in_questions_cost_f1_and_leave_passages_alone(tmp_path, passages):
    """A quarter of the letters of `which colour?` wrong: the answers are still spans of the passages."""
    accuracy = scored(tmp_path, "question-answering.onnx", passages, ["character_swap"], text_settings="stride_tokens = 8\n")
    (swap,) = accuracy.robustness.corruptions
    assert accuracy.value > swap.values[2] > 0
    assert accuracy.value > swap.values[4]


@pytest.mark.parametrize("name", ["text-classification.onnx", "text-classification.tflite"])
def test_without_data_a_model_is_timed_on_tokens_of_its_vocabulary(tmp_path, name):
    """Noise over all integers would be outside of every embedding; the record says how long the texts were."""
    pytest.importorskip(RUNTIMES[name[name.index(".") :]])
    place_model(tmp_path, name, 24)
    (tmp_path / "suite.toml").write_text(f'name = "text"\n[[case]]\nmodel = "{name}"\n')
    (case,) = expand(read_toml(tmp_path / "suite.toml", SuiteFile, "suite"), tmp_path).cases
    runtime = runtimes.create(case.runtime)
    try:
        loaded = loading.load_model(case, runtime)
        calls = loading.prepare_calls(loaded, loaded.calls_of(0, 0), 0).calls
        assert {array.shape for call in calls for array in call} == {(1, 24)}
        assert all(0 <= call[0].min() <= call[0].max() < 128 for call in calls)
        assert len({call[0].tobytes() for call in calls}) == len(calls) == 8
        runtime.bind(calls[0])()
        described = loading.describe_dataset(loaded.data, 0, loaded.card)
        assert (described.images, described.text.tokens) == (0, 24)
    finally:
        runtime.close()


def test_texts_of_different_lengths_make_no_batch():
    """Offline, in batches of four, without padding: one line that says what to do."""
    with pytest.raises(ConfigError, match="different lengths make no batch: pad them"):
        join_batch([[np.zeros((1, 3))], [np.zeros((1, 4))]])


@pytest.mark.slow
def test_a_run_states_how_texts_became_inputs_and_two_lengths_are_two_cases(tmp_path, sentences):
    """Tokenising is a stage of its own; 12 tokens and 24 differ in inputs, case and accuracy."""
    pytest.importorskip("onnxruntime")
    records = []
    for tokens in (12, 24):
        folder = tmp_path / str(tokens)
        folder.mkdir()
        model = place_model(folder, "text-classification.onnx", tokens)
        completed = subprocess.run(
            [sys.executable, "-m", "edgemeter.agent.cli.main", "run", "--model", model, "--data", sentences, "--mode", "rapid",
             "--repeats", "1", "--json"],
            capture_output=True, text=True, check=False, timeout=900, cwd=folder,
        )  # fmt: skip
        assert completed.returncode == 0, completed.stderr
        records += json.loads(completed.stdout)["runs"]
    shorter, other = records
    assert [record["dataset"]["text"]["tokens"] for record in records] == [12, 24]
    assert shorter["dataset"]["sha256"] == other["dataset"]["sha256"]
    assert shorter["case"] != other["case"]
    assert [record["inputs"][0]["shape"] for record in records] == [[1, 12], [1, 24]]
    assert all(record["preprocess"]["mean_ms"] > 0 for record in records)
    assert shorter["accuracy"]["metric"] == "accuracy"
    assert shorter["model"]["task"] == "text-classification"
