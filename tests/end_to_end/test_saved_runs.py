"""Facts about what stays of a run: in this device's ledger, whatever becomes of the terminal."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.one_file import whole_text
from tests.fixtures.replay_case import replay_model
from tests.fixtures.small_disk import small_disk


def edgemeter(home, *arguments, stdout=subprocess.PIPE):
    """Return the finished process of a command whose home is `home`."""
    environment = {**os.environ, "EDGEMETER_HOME": str(home)}
    command = [*EDGEMETER, *map(str, arguments)]
    return subprocess.run(command, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=300)


def measure(folder, *arguments, home=None, stdout=subprocess.PIPE):
    """Return the finished `edgemeter run` of a replay model."""
    model = replay_model(folder)
    return edgemeter(home or folder / "home", "run", model, "--mode", "rapid", "--power", "none", "--repeats", 1, *arguments, stdout=stdout)


def records_of(home):
    """Return the records of the ledger in `home`."""
    with SqliteLedger(home / "ledger.sqlite", "read") as ledger:
        return [record.record for record in ledger.records(with_samples=True)]


@pytest.mark.services
def test_a_run_is_kept_and_read_without_options(tmp_path):
    """The last line says where it is; standard output is JSON and nothing else; the report and the trend find the run."""
    home, page = tmp_path / "home", tmp_path / "report.html"
    result = measure(tmp_path, "--json")
    (printed,) = json.loads(result.stdout)["runs"]
    (record,) = records_of(home)
    assert result.returncode == 0
    assert (record.id, record.session, record.seq) == (printed["id"], printed["session"], printed["seq"])
    assert record.samples
    assert result.stderr.splitlines()[-1] == f"saved as {record.id[:8]} in {home / 'ledger.sqlite'}; see `edgemeter report`"
    assert edgemeter(home, "report", "-o", page).returncode == 0
    assert record.id in whole_text(page)
    assert edgemeter(home, "trend").returncode == 0


@pytest.mark.services
def test_the_first_words_state_what_will_be_done_and_a_pipe_gets_a_line_a_phase(tmp_path):
    """What, how often and how long, before anything else; then each phase in its order; `--quiet` prints none of it."""
    first, *_, loading, preparing, warming, timing, _scoring, ended, took, saved = measure(tmp_path).stderr.splitlines()
    assert first == "measuring m.replay.json replay 1 thread; mode rapid; 1 run, 2 s to 4 s"
    begun = "[1/1] m.replay.json replay 1 thread, repeat 1: "
    assert loading.startswith(f"{begun}load, all: ")
    assert preparing.startswith(f"{begun}prepare, ")
    assert warming.startswith(f"{begun}warm-up, ")
    assert timing.startswith(f"{begun}timed, ")
    assert ended.startswith(f"{begun}p50 ")
    assert took.startswith("1 of 1 run took ")
    assert saved.startswith("saved as ")
    assert measure(tmp_path, "--quiet", "--json").stderr == ""


def test_the_first_words_need_no_runtime_and_no_arrays():
    """Nothing that takes long to import comes before them."""
    code = "import sys, edgemeter.agent.cli.run_session; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "rich", "sqlite3", "paho", "edgemeter.agent.session.session"} & set(modules)


@pytest.mark.services
def test_no_save_keeps_nothing(tmp_path):
    """No ledger is made, and none is named."""
    result = measure(tmp_path, "--no-save")
    assert result.returncode == 0
    assert not (tmp_path / "home" / "ledger.sqlite").exists()
    assert "saved" not in result.stderr


@pytest.mark.services
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_full_standard_output_is_one_line_after_the_run_was_saved(tmp_path, form):
    """The figures are in the ledger and in the document."""
    with Path("/dev/full").open("w") as full:
        result = measure(tmp_path, *form, "--output", tmp_path / "out.json", stdout=full)
    (record,) = records_of(tmp_path / "home")
    assert json.loads((tmp_path / "out.json").read_text())["runs"][0]["id"] == record.id
    assert result.returncode == 1
    *_, saved, failed = result.stderr.splitlines()
    assert saved.startswith(f"saved as {record.id[:8]} ")
    assert failed == "edgemeter: cannot write to standard output: No space left on device"


@pytest.mark.services
def test_without_a_home_nothing_is_measured(tmp_path):
    """What could not be kept would be lost with the terminal; `--no-save` is the remedy that costs nothing."""
    (tmp_path / "file").touch()
    result = measure(tmp_path, "--json", home=tmp_path / "file" / "home")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("edgemeter: the results cannot be saved: cannot open or make the ledger ")
    assert result.stderr.endswith("; or keep none (--no-save, in Python save=False)\n")
    assert measure(tmp_path, "--no-save", home=tmp_path / "file" / "home").returncode == 0


@pytest.mark.services
def test_on_a_full_disk_nothing_is_measured(tmp_path):
    """The ledger is there from before, and another program took what was free."""
    with small_disk(tmp_path / "home", 1) as home:
        SqliteLedger(home / "ledger.sqlite").close()
        free = shutil.disk_usage(home).free
        (home / "filler").write_bytes(bytes(free - 65_536))
        result = measure(tmp_path, "--json", home=home)
    assert (result.returncode, result.stdout) == (2, "")
    assert "is full: free some space" in result.stderr


@pytest.mark.parametrize(
    ("option", "target", "words"),
    [
        ("--output", "nowhere/out.json", "there is no folder"),
        ("--output", ".", "it is a folder"),
        ("--bundle", "m.replay.json", "cannot write bundles to"),
    ],
)
def test_where_results_cannot_be_written_nothing_is_measured(tmp_path, option, target, words):
    """A mistyped path costs a second, not the measurement."""
    result = measure(tmp_path, option, tmp_path / target)
    assert (result.returncode, result.stdout) == (2, "")
    assert words in result.stderr
    assert not (tmp_path / "home" / "ledger.sqlite").exists()


@pytest.mark.services
def test_a_comparison_keeps_its_runs_too(tmp_path):
    """Every run of every pair is in the ledger, in the order of the document."""
    model = replay_model(tmp_path)
    result = edgemeter(tmp_path / "home", "compare", model, model, "--repeats", 2, "--mode", "rapid", "--json")
    assert result.returncode == 0, result.stderr
    assert [run["id"] for run in json.loads(result.stdout)["runs"]] == [run.id for run in records_of(tmp_path / "home")]
    assert result.stderr.splitlines()[-1].endswith("see `edgemeter report`")
