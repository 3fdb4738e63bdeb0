"""Tests of the action for pull requests.

Its own steps run here as GitHub would run them, on a model of recorded latencies.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from edgemeter.collector.show.comment import MARK

pytestmark = pytest.mark.needs("bash", "git")

ACTION = Path(__file__).resolve().parents[2] / "action.yml"
SUITE = (
    'name = "s"\n[defaults]\nmode = "rapid"\nidle_seconds = 0.0\n[[case]]\nmodel = '
    '"model.replay.json"\n'
)


def replay(latency_ms):
    """Return a model that takes this long, give or take a little."""
    shape = {"shape": [1, 2], "dtype": "float32"}
    latencies = [latency_ms * (1 + 0.01 * (number % 5)) for number in range(16)]
    document = {
        "format": "edgemeter-replay", "schema": 1, "latencies_ms": latencies,
        "inputs": [{"name": "x", **shape}],
        "outputs": [{"name": "y", **shape, "values": [0.25, 0.75]}],
    }  # fmt: skip
    return json.dumps(document)


class Runner:
    """A checkout with two commits, and the steps of the action in it."""

    def __init__(self, folder, event):
        self.folder, self.event = folder, event
        self.inputs = {}
        document = yaml.safe_load(ACTION.read_text())
        self.steps = {step["name"]: step for step in document["runs"]["steps"] if "run" in step}
        self.defaults = {
            name: attributes["default"] for name, attributes in document["inputs"].items()
        }
        self.git("init", "--quiet", "--initial-branch", "main")
        (folder / ".edgemeter" / "bin").mkdir(parents=True)
        program = folder / ".edgemeter" / "bin" / "edgemeter"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m edgemeter.agent.cli.main "$@"\n')
        program.chmod(0o755)

    def git(self, *arguments):
        who = ["-c", "user.name=t", "-c", "user.email=t@t"]
        completed = subprocess.run(
            ["git", *who, *arguments], cwd=self.folder, capture_output=True, text=True, check=True
        )
        return completed.stdout.strip()

    def commit(self, latency_ms):
        (self.folder / "suite.toml").write_text(SUITE)
        (self.folder / "model.replay.json").write_text(replay(latency_ms))
        self.git("add", "suite.toml", "model.replay.json")
        self.git("commit", "--quiet", "--allow-empty", "--message", "c")
        return self.git("rev-parse", "HEAD")

    def step(self, name):
        """Run a step with its expressions replaced by their values; return status and output."""
        values = {
            "github.event_name == 'pull_request' && 'new' || 'base'": "new"
            if self.event == "pull_request"
            else "base",
            **{f"inputs.{key}": value for key, value in (self.defaults | self.inputs).items()},
        }
        variables = {
            key: re.sub(r"\$\{\{ (.+?) \}\}", lambda match: values[match[1]], text)
            for key, text in self.steps[name].get("env", {}).items()
        }
        environment = {
            **os.environ, **variables, "EDGEMETER_HOME": str(self.folder / "home"),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
        }  # fmt: skip
        script = self.steps[name]["run"]
        assert "${{" not in script, "an expression in a script is a stranger's code"
        completed = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
            timeout=580,
        )  # fmt: skip
        return completed.returncode, completed.stderr


@pytest.mark.alone
@pytest.mark.parametrize(("new_ms", "status"), [(2.0, 0), (3.0, 1)])
def test_a_pull_request_is_measured_against_its_base_in_turn(tmp_path, new_ms, status):
    """A slower pull request gives status 1 and a comment, and an equal one status 0.

    The pull request and its base are measured in turn.
    """
    runner = Runner(tmp_path, "pull_request")
    runner.inputs = {"rounds": "3", "fail-on": "slower:20%"}
    base = runner.commit(2.0)
    runner.commit(new_ms)
    runner.git("worktree", "add", "--force", "base", base)
    assert runner.step("measure")[0] == 0
    assert sorted(path.name for path in (tmp_path / "runs" / "base").iterdir()) == [
        "1.json",
        "2.json",
        "3.json",
    ]
    ended, errors = runner.step("compare")
    assert ended == status, errors + (tmp_path / "comment.md").read_text()
    assert (tmp_path / "comment.md").read_text().startswith(MARK)
    assert (tmp_path / "summary").read_text() == (tmp_path / "comment.md").read_text()


def test_a_push_stores_the_baseline_that_a_later_pull_request_takes(tmp_path):
    """A push's folder for the cache is the folder that a later pull request restores."""
    (tmp_path / "push").mkdir()
    (tmp_path / "change").mkdir()
    pushed, changed = Runner(tmp_path / "push", "push"), Runner(tmp_path / "change", "pull_request")
    for runner, latency_ms in ((pushed, 2.0), (changed, 3.0)):
        runner.inputs = {"rounds": "3", "baseline": "stored", "fail-on": "slower:20%"}
        runner.commit(latency_ms)
    assert pushed.step("measure")[0] == 0
    (changed.folder / "runs").mkdir()
    (pushed.folder / "runs" / "base").rename(changed.folder / "runs" / "base")
    assert changed.step("measure")[0] == 0
    assert changed.step("compare")[0] == 1


def test_without_a_stored_baseline_the_check_does_not_pass(tmp_path):
    """Without a baseline the check fails, unless an inconclusive one may pass, and comments."""
    runner = Runner(tmp_path, "pull_request")
    runner.inputs = {"rounds": "1", "baseline": "stored"}
    runner.commit(2.0)
    assert runner.step("measure")[0] == 0
    assert runner.step("compare")[0] != 0
    assert "inconclusive" in (tmp_path / "comment.md").read_text()


def test_a_change_that_cannot_be_judged_passes_where_that_is_wanted(tmp_path):
    """One round of each model has no interval, which passes where that is wanted."""
    runner = Runner(tmp_path, "pull_request")
    base = runner.commit(2.0)
    runner.commit(2.0)
    runner.git("worktree", "add", "--force", "base", base)
    runner.inputs = {"rounds": "1", "fail-on": "slower:20%"}
    assert runner.step("measure")[0] == 0
    for inconclusive, status in (("fail", 1), ("pass", 0)):
        runner.inputs["inconclusive"] = inconclusive
        assert runner.step("compare")[0] == status
        ending = "passes" if status == 0 else "fails"
        assert (
            f"**inconclusive, which {ending}: slower:20%**" in (tmp_path / "comment.md").read_text()
        )


def test_the_base_is_checked_out_where_the_measuring_step_reads_it():
    """The base commit of the pull request is in the folder that the measuring step reads.

    The checkout leaves no credentials behind for the code that runs there.
    """
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    (base,) = (step for step in steps if step.get("uses", "").startswith("actions/checkout@"))
    assert base["with"] == {
        "ref": "${{ github.event.pull_request.base.sha }}",
        "path": "base",
        "persist-credentials": False,
    }
    (measure,) = (step for step in steps if step.get("name") == "measure")
    assert "[ -d base ]" in measure["run"]
