"""Facts about the options that every command shares: `-m`, `-i`, `-a`, `-q` mean the same everywhere."""

import json
from pathlib import Path

import click
import pytest

from tests.fixtures.command import edgemeter
from tests.fixtures.command_lines import every_command
from tests.fixtures.rows import table_row

MODEL = Path(__file__).resolve().parents[2] / "fixtures" / "runtimes" / "replay.replay.json"
SHORT = {"--model": "-m", "--images": "-i", "--annotations": "-a", "--quiet": "-q", "--output": "-o"}
# The number of images of a published accuracy.
OTHER = {("models references add", "--images")}
OPTIONS = [(" ".join(path), one) for path, command in every_command() for one in command.params if isinstance(one, click.Option)]


def test_a_short_option_stands_for_one_long_one_everywhere():
    """Wherever the one exists the other does, and it means nothing else."""
    for long, short in SHORT.items():
        with table_row(long):
            for path, option in OPTIONS:
                if (path, long) not in OTHER:
                    assert (long in option.opts) == (short in option.opts), path


@pytest.mark.slow
def test_quiet_leaves_the_result_alone(tmp_path):
    """No note on standard error (where the runs were saved is one); the result is what it was."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "EDGEMETER_RUN_LOCK": str(tmp_path / "run.lock")}
    options = ("run", "-m", MODEL, "--mode", "rapid", "--power", "none", "--json")
    loud, quiet = (edgemeter(*options, *more, env=environment) for more in ((), ("-q",)))
    assert loud.stderr != ""
    assert quiet.stderr == ""
    assert [one["mode"] for one in json.loads(quiet.stdout)["runs"]] == [one["mode"] for one in json.loads(loud.stdout)["runs"]]


def test_quiet_hides_no_error(tmp_path):
    """What went wrong is no note."""
    done = edgemeter("run", "-q", "-m", "absent.onnx", cwd=tmp_path)
    assert done.returncode == 2
    assert "absent.onnx" in done.stderr
