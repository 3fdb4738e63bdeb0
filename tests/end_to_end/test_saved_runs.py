"""Facts about what stays of a run: in this device's ledger, whatever becomes of the terminal."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.one_file import whole_text
from tests.fixtures.replay_case import replay_model
from tests.fixtures.rows import table_row


def edgemeter(home, *arguments, stdout=subprocess.PIPE):
    environment = {**os.environ, "EDGEMETER_HOME": str(home)}
    command = [*EDGEMETER, *map(str, arguments)]
    return subprocess.run(
        command,
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
    )


def measure(folder, *arguments, home=None, stdout=subprocess.PIPE):
    model = replay_model(folder)
    return edgemeter(
        home or folder / "home",
        "run",
        model,
        "--mode",
        "rapid",
        "--power",
        "none",
        "--repeats",
        1,
        *arguments,
        stdout=stdout,
    )


def records_of(home):
    with SqliteLedger(home / "ledger.sqlite", "read") as ledger:
        return [record.record for record in ledger.records(with_samples=True)]


@pytest.mark.services
def test_a_run_is_kept_and_read_without_options(tmp_path):
    """A run is kept without any option, and report and trend find it.

    Standard output is JSON and nothing else, or ends with the run's name; standard error has a line
    a run.
    """
    home, page = tmp_path / "home", tmp_path / "report.html"
    result = measure(tmp_path, "--format", "json")
    (printed,) = json.loads(result.stdout)["runs"]
    (record,) = records_of(home)
    assert result.returncode == 0
    assert (record.id, record.session, record.seq) == (
        printed["id"],
        printed["session"],
        printed["seq"],
    )
    assert record.samples
    (line,) = result.stderr.splitlines()
    assert line.startswith("[1/1] m.replay.json replay 1 thread: ")
    assert edgemeter(home, "report", "-o", page).returncode == 0
    assert record.id in whole_text(page)
    assert edgemeter(home, "trend").returncode == 0
    saved = measure(tmp_path).stdout.splitlines()[-1]
    assert records_of(home)[-1].id[:8] in saved


@pytest.mark.services
def test_a_full_standard_output_is_one_line_after_the_run_was_saved(tmp_path):
    """A full standard output gives one line, after the run was saved to ledger and document."""
    with Path("/dev/full").open("w") as full:
        result = measure(
            tmp_path, "--format", "json", "--output", tmp_path / "out.json", stdout=full
        )
    (record,) = records_of(tmp_path / "home")
    assert json.loads((tmp_path / "out.json").read_text())["runs"][0]["id"] == record.id
    assert result.returncode == 1
    assert "standard output" in result.stderr.splitlines()[-1]


@pytest.mark.services
def test_where_results_cannot_be_kept_or_written_nothing_is_measured(tmp_path):
    """Nothing is measured if the results cannot be kept or written.

    So a mistyped path costs a second, not the measurement. `--no-save` keeps nothing, and needs no
    home.
    """
    (tmp_path / "file").touch()
    home = tmp_path / "file" / "home"
    for options, named in (
        ({"home": home}, "--no-save"),
        ({"output": ("--output", tmp_path / "nowhere" / "out.json")}, "there is no folder"),
        ({"output": ("--output", tmp_path)}, "it is a folder"),
        ({"output": ("--bundle", tmp_path / "m.replay.json")}, "cannot write bundles to"),
    ):
        with table_row(options):
            result = measure(
                tmp_path, "--format", "json", *options.get("output", ()), home=options.get("home")
            )
            assert (result.returncode, result.stdout) == (2, "")
            assert named in result.stderr
    assert not (tmp_path / "home" / "ledger.sqlite").exists()
    assert measure(tmp_path, "--no-save", home=home).returncode == 0


@pytest.mark.services
def test_a_comparison_keeps_its_runs_too(tmp_path):
    """Every run of every round of a comparison is in the ledger.

    If a model is compared with itself, each side has its own runs.
    """
    model = replay_model(tmp_path)
    result = edgemeter(
        tmp_path / "home",
        "compare",
        model,
        model,
        "--repeats",
        2,
        "--mode",
        "rapid",
        "--format",
        "json",
    )
    assert result.returncode == 0, result.stderr
    first, second = (row["run_ids"] for row in json.loads(result.stdout)["rows"])
    records = records_of(tmp_path / "home")
    assert sorted([*first, *second]) == sorted(run.id for run in records)
    assert [run.repeat for run in records] == [0, 0, 1, 1]
