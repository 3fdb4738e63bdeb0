"""Facts about `edgemeter compare A B` where A and B are models."""

import json
import os

import pytest

from edgemeter.collector.cli.compare import is_model
from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER
from tests.fixtures.command import edgemeter
from tests.fixtures.replay_case import replay_case
from tests.fixtures.rows import in_folders


def run(*arguments, **settings):
    """Return how `edgemeter compare ARGUMENTS` ended."""
    return edgemeter("compare", *arguments, **settings)


def test_results_and_models_are_distinguished(tmp_path, monkeypatch):
    """A model's file, a factory, a suite, a replay or a name is measured; a document, a ledger, a bundle or a folder is read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    measured = ["a.onnx", "b.TFLITE", "suite.toml", "x.replay.json", "yolox-nano", "a_q4.gguf"]
    measured += ["net.py:make", "json:loads"]
    read = ["runs.json", "ledger.sqlite?device=pi-1", "a.edgemeter.zip", "folder", "server-1", "no_such_module:net"]
    assert [is_model(name) for name in (*measured, *read)] == [True] * 8 + [False] * 6


def test_wrong_usage_names_the_remedy(tmp_path):
    """One line, before anything is measured."""
    for folder, arguments, says in in_folders(
        tmp_path,
        [
            (("a.replay.json",), "two models"),
            (("a.replay.json", "a.replay.json", "--markdown"), "--markdown"),
            (("a.replay.json", "none.onnx", "--repeats", 2), "none.onnx"),
            (("a.replay.json", "runs.json"), "runs.json"),
            (("yolox-nanno", "yolox-tinny"), "did you mean yolox-n"),
            (("two.toml", "a.replay.json"), "2 cases"),
        ],
    ):
        replay_case(folder, "a", 1.0)
        (folder / "two.toml").write_text('name = "two"\n[[case]]\nmodel = "a.replay.json"\nthreads = [1, 2]\n')
        result = run(*arguments, cwd=folder)
        assert (result.returncode, result.stdout) == (2, ""), f"{arguments!r}"
        assert says in result.stderr, f"{arguments!r}"


@pytest.mark.needs(module="xllamacpp")
def test_two_language_models_are_compared_by_their_two_rates_and_their_perplexity(tmp_path):
    """Files of four and of eight bits: the options of `run`, both perplexities as the index of the shipped files has them."""
    names = [SHIPPED_FOLDER.parent / "language" / f"edgemeter-notes_{bits}.gguf" for bits in ("q4_0", "q8_0")]
    lengths = ("--prompt-tokens", 32, "--output-tokens", 8, "--option", "kv_type=f32")
    result = run(
        *names, *lengths, "--mode", "rapid", "--repeats", 2, "--format", "json", env=os.environ | {"EDGEMETER_HOME": str(tmp_path)}
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert "perplexity 1.478 against 1.496 (95% of their ratio 0.98" in document["contrasts"][0]["sentence"]
    assert {difference["figure"] for difference in document["contrasts"][0]["differences"]} == {
        "generation_ttft_p50_ms",
        "generation_tpot_p50_ms",
        "generation_energy_output_token_gross_mj",
        "perplexity",
    }
    assert {run["generation"]["model"]["kv_type"] for run in document["runs"]} == {"f32"}
    assert result.stderr.count(": 2 runs, ") == 2
