"""The reusable workflow of a board: its own script, run here as GitHub would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgemeter.agent.bundle.signature import keygen, signer
from tests.fixtures.bundle_factory import make_sound_record, write_bundle

WORKFLOW = Path(__file__).resolve().parents[2] / ".github" / "workflows" / "board.yml"


@pytest.fixture
def checkout(tmp_path):
    """Return a repository's folder with one lab's key and one bundle, and the signer."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "edgemeter"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m edgemeter.agent.cli.main "$@"\n')
    program.chmod(0o755)
    (tmp_path / "labs").mkdir()
    (tmp_path / "bundles").mkdir()
    public, _ = keygen(tmp_path / "oslo.key")
    public.rename(tmp_path / "labs" / "oslo.pub")
    by = signer(tmp_path / "oslo.key")
    write_bundle(tmp_path / "bundles", make_sound_record(), by)
    return tmp_path, by


def build(folder):
    """Run the step that makes the site; return its status and what it said."""
    yaml = pytest.importorskip("yaml")
    document = yaml.safe_load(WORKFLOW.read_text())
    inputs = {name: attributes["default"] for name, attributes in document[True]["workflow_call"]["inputs"].items()}
    (step,) = [step for step in document["jobs"]["build"]["steps"] if "recompute" in step.get("name", "")]
    assert "${{" not in step["run"], "an expression in a script is a stranger's code"
    variables = {name: inputs[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in step["env"].items()}
    completed = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder, env={**os.environ, **variables, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    return completed.returncode, completed.stderr


@pytest.mark.slow
def test_bundles_that_hold_become_the_site(checkout):
    """Bundles that verify with their labs' keys are what the site is made of."""
    folder, _ = checkout
    status, words = build(folder)
    assert status == 0, words
    assert "1 of 1 bundle verified" in words
    assert (folder / "site" / "index.html").exists()


def test_a_pull_request_with_a_forged_figure_fails(checkout):
    """It names the file and the figure, and there is no site."""
    folder, by = checkout
    write_bundle(folder / "bundles", make_sound_record(id="forged", throughput_per_s=1e6), by)
    status, words = build(folder)
    assert status == 1
    assert "refused: bundles/forged.edgemeter: does not recompute from its raw samples: throughput_per_s" in words
    assert not (folder / "site").exists()


def test_a_pull_request_of_a_stranger_fails(checkout):
    """A key that is not among the labs."""
    folder, _ = checkout
    keygen(folder / "stranger.key")
    write_bundle(folder / "bundles", make_sound_record(id="by-a-stranger"), signer(folder / "stranger.key"))
    status, words = build(folder)
    assert status == 1
    assert "not among those of this board" in words
