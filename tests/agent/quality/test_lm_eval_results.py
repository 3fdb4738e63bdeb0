"""Facts about results of lm-evaluation-harness: what the file states is shown, as imported."""

import json
import math

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli.main import cli
from edgemeter.agent.quality.lm_eval_results import read_results

# The keys and types are those of a file of version 0.4.13; the numbers are made.
RESULTS = {
    "results": {
        "notes": {"name": "notes", "alias": "notes", "sample_len": 20, "acc,none": 0.3, "acc_stderr,none": 0.1051, "acc_norm,none": 0.1},
        "words": {"alias": "words", "exact_match,strict": 1, "exact_match_stderr,strict": "N/A"},
    },
    "versions": {"notes": 1.0},
    "n-shot": {"notes": 0, "words": 5},
    "higher_is_better": {"notes": {"acc": True, "acc_norm": True}},
    "n-samples": {"notes": {"original": 120, "effective": 20}},
    "config": {"model": "hf", "model_args": {"pretrained": "/models/tiny", "dtype": "float32"}, "limit": 20.0},
    "date": 1795624783.67,
    "lm_eval_version": "0.4.13",
}


@pytest.fixture
def results_file(tmp_path):
    """Return the path of the results."""
    path = tmp_path / "results_2026.json"
    path.write_text(json.dumps(RESULTS))
    return path


def test_each_metric_is_a_score_with_its_origin(results_file):
    """Names, lengths and error terms are no scores; what is not stated is null."""
    results = read_results(results_file)
    assert (results.source, results.model) == ("lm-evaluation-harness 0.4.13", "hf pretrained=/models/tiny,dtype=float32")
    scores = {(score.task, score.metric, score.filter): score for score in results.scores}
    assert list(scores) == [("notes", "acc", "none"), ("notes", "acc_norm", "none"), ("words", "exact_match", "strict")]
    acc = scores["notes", "acc", "none"]
    assert (acc.value, acc.standard_error, acc.items, acc.shots, acc.is_higher_better) == (0.3, 0.1051, 20, 0, True)
    words = scores["words", "exact_match", "strict"]
    assert (words.value, words.standard_error, words.items, words.task_version) == (1.0, None, None, None)


def test_a_score_that_is_not_a_number_costs_no_other(results_file):
    """The tool writes NaN, which is not JSON: before, no score of such a file was read."""
    results_file.write_text(json.dumps(RESULTS | {"results": {"notes": {"acc,none": float("nan"), "f1,none": 0.5}}}))
    nan, share = read_results(results_file).scores
    assert (math.isnan(nan.value), share.value) == (True, 0.5)


def test_imported_scores_stand_apart_from_what_is_measured(results_file):
    """In a table of their own that names the tool and the model, and in JSON under a key of their own."""
    printed = CliRunner().invoke(cli, ["models", "quality", "--lm-eval", str(results_file)])
    assert printed.exit_code == 0, printed.output
    assert "imported, not measured here: lm-evaluation-harness" in " ".join(printed.stdout.split())
    document = json.loads(CliRunner().invoke(cli, ["models", "quality", "--lm-eval", str(results_file), "--json"]).stdout)
    assert document["files"] == []
    assert [score["value"] for score in document["imported"][0]["scores"]] == [0.3, 0.1, 1.0]


def test_what_is_no_such_file_is_one_line(tmp_path, results_file):
    """With what to give instead; without a model there is nothing to score."""
    (tmp_path / "other.json").write_text('{"results": {"task": {"alias": "x"}}}')
    for name, reason in (("other.json", "holds no score"), ("absent.json", "cannot read the results")):
        with pytest.raises(ConfigError, match=reason):
            read_results(tmp_path / name)
    results_file.write_text("[]")
    with pytest.raises(ConfigError, match="is no file of lm-evaluation-harness"):
        read_results(results_file)
    failed = CliRunner().invoke(cli, ["models", "quality"])
    assert "give --model FILE, or --lm-eval FILE alone" in str(failed.exception)
