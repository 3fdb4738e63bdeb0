"""Facts about `edgemeter ab`."""

import json
import subprocess
import sys

import pytest

from edgemeter.agent.cli import ab
from edgemeter.agent.session import ab as session_ab
from tests.fixtures.replay_case import replay_case


def run(*arguments):
    """Return the finished process of `edgemeter ab ARGUMENTS`."""
    return subprocess.run(
        [sys.executable, "-m", "edgemeter.agent.cli.main", "ab", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_the_help_teaches_by_an_example():
    """The help says what a verdict is about and shows one command."""
    done = run("--help")
    assert done.returncode == 0
    assert "Example: edgemeter ab model_fp32.tflite model_int8.tflite" in done.stdout


def test_a_model_against_itself_prints_both_sides_and_a_verdict(tmp_path):
    """Two runs a side: table, ratio, interval, verdict, and in JSON the same with the records."""
    replay_case(tmp_path, "a", 1.0)
    done = run(tmp_path / "a.replay.json", tmp_path / "a.replay.json", "--runs", 2, "--mode", "rapid")
    assert done.returncode == 0, done.stderr
    assert "a.replay.json" in done.stdout
    assert any(
        f"{state}: B takes" in done.stdout or f"B is {state}" in done.stdout for state in ("not enough runs", "no difference that matters")
    )


@pytest.mark.slow
@pytest.mark.alone
def test_suites_of_one_case_are_compared_and_given_as_json(tmp_path):
    """A.toml and B.toml may differ in anything; the records of all runs are in the document."""
    for name, latency_ms in (("a", 2.0), ("b", 3.0)):
        replay_case(tmp_path, name, latency_ms)
        (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\n[[case]]\nmodel = "{name}.replay.json"\nmode = "rapid"\n')
    done = run(tmp_path / "a.toml", tmp_path / "b.toml", "--runs", 3, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["judgement"]["ratio"] == pytest.approx(1.5, rel=0.1)
    assert [one["model"]["file"] for one in document["runs"]] == [f"{name}.replay.json" for name in "abbaab"]


def test_a_suite_of_two_cases_is_refused(tmp_path):
    """A side is one case; the message names those that are there."""
    replay_case(tmp_path, "a", 1.0)
    (tmp_path / "two.toml").write_text('name = "two"\n[[case]]\nmodel = "a.replay.json"\nthreads = [1, 2]\n')
    done = run(tmp_path / "two.toml", tmp_path / "a.replay.json")
    assert done.returncode == 2
    assert "holds 2 cases (a.replay.json replay 1 thread, a.replay.json replay 2 threads): leave one" in done.stderr


@pytest.mark.parametrize(
    ("log_ratios", "says"),
    [
        ([0.1, 0.11, 0.12, 0.1, 0.11], "B is slower: B takes 1.1163 times as long as A (95 %"),
        ([-0.1, -0.11, -0.12, -0.1, -0.11], "B is faster: B takes 0.8958 times"),
        (
            [0.001, -0.001, 0.0, 0.002, -0.002],
            "no difference that matters: B takes 1.0000 times as long as A (95 % 0.9980 .. 1.0020, 5 pairs), less",
        ),
        ([0.05, -0.04, 0.02, -0.02, 0.0], "more pairs would settle it"),
        ([0.1], "not enough runs: 1 pair of runs shows no spread"),
    ],
)
def test_each_verdict_is_a_sentence(log_ratios, says):
    """The sentence has verdict, ratio and interval, and how many more pairs are needed."""
    assert says in ab.sentence(session_ab.judge_pairs(log_ratios))
