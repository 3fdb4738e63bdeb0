"""Tests of the example workflows.

They are valid YAML with commands that exist, and a comment that the next one finds.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from edgemeter.agent.cli.main import cli
from edgemeter.collector.show.comment import MARK
from tests.fixtures.comparison_factory import document
from tests.fixtures.rows import table_row
from tests.fixtures.side_factory import make_side

DOCS = Path(__file__).parents[2] / "docs"
WORKFLOWS = sorted((DOCS / "review").glob("*.yml"))
ACTION = DOCS.parent / "action.yml"
SCRIPTED = [path for path in (*WORKFLOWS, ACTION) if path.stem != "github-measure"]
COMPARING = [path for path in WORKFLOWS if "--fail-on" in path.read_text()]


def commands(path):
    """Return the arguments of every edgemeter command in a file, without redirections."""
    matches = re.findall(r"(?:bin/|\$ )edgemeter ((?:run|compare) [^>\n)]+)", path.read_text())
    return [shlex.split(match) for match in matches]


def scripts(node):
    """Yield every shell script in a document."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("run", "script", "after_script"):
                yield "\n".join(value) if isinstance(value, list) else value
            yield from scripts(value)
    elif isinstance(node, list):
        for value in node:
            yield from scripts(value)


@pytest.mark.needs("bash")
@pytest.mark.parametrize("path", SCRIPTED, ids=lambda path: path.stem)
def test_a_workflow_is_yaml_with_scripts_that_a_shell_takes(path):
    """A workflow is valid YAML, and `bash -n` accepts each script in it."""
    shell_scripts = list(scripts(yaml.safe_load(path.read_text())))
    assert shell_scripts
    for script in shell_scripts:
        completed = subprocess.run(
            ["bash", "-n"],
            input=re.sub(r"\$\{\{.*?\}\}", "x", script),
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert (completed.returncode, completed.stderr) == (0, "")


def test_every_command_in_the_examples_is_one_that_there_is():
    """Every command in the examples exists and has the options that they give it."""
    for path in (*WORKFLOWS, DOCS / "start" / "pull-requests.md"):
        for name, *arguments in commands(path):
            with table_row(path.name, name, *arguments):
                cli.get_command(None, name).make_context(name, [*arguments])


@pytest.mark.services
@pytest.mark.parametrize("path", COMPARING, ids=lambda path: path.stem)
def test_the_comparison_of_an_example_does_what_the_example_promises(path, tmp_path):
    """A comparison in an example gives status 1 for a slower change and 0 for an equal one.

    It writes a comment, and reads the folders that the measuring step leaves behind.
    """
    (arguments,) = [arguments for arguments in commands(path) if arguments[0] == "compare"]
    for factor, status in ((1.0, 0), (1.2, 1)):
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        for number, (side, times) in enumerate((("base", 1.0), ("new", factor))):
            folder = tmp_path / "runs" / side
            folder.mkdir(parents=True)
            for index, run in enumerate(
                make_side(agent=side, factor=times, runs=5, seed=number, start=100 * number)
            ):
                (folder / f"{index}.json").write_bytes(document(run))
        command = [sys.executable, "-m", "edgemeter.agent.cli.main", *arguments]
        completed = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert completed.returncode == status, completed.stderr
        assert completed.stdout.splitlines()[0] == MARK


def test_the_example_gives_the_action_what_it_takes():
    """The example uses only inputs that the action has, and the default of `fail-on`."""
    (path,) = (workflow for workflow in WORKFLOWS if workflow.stem == "github-measure")
    steps = yaml.safe_load(path.read_text())["jobs"]["measure"]["steps"]
    (inputs_of_example,) = (step["with"] for step in steps if step["uses"].startswith("edgemeter/"))
    inputs = yaml.safe_load(ACTION.read_text())["inputs"]
    assert set(inputs_of_example) <= set(inputs)
    assert inputs_of_example["fail-on"] == inputs["fail-on"]["default"]


def test_the_examples_find_a_comment_by_the_mark_that_it_begins_with():
    """The examples find a comment by its mark, or every push would add another comment."""
    for path in WORKFLOWS:
        text = path.read_text()
        if "notes" in text or "issues/" in text:
            assert MARK in text.replace('\\"', '"'), path.name
