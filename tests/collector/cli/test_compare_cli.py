import csv
import io
import json
import subprocess

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.collector import store as python_store
from edgemeter.collector.cli.compare import compare
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import document, make_reference, make_run
from tests.fixtures.level_factory import level_runs, stepped_ms
from tests.fixtures.record_factory import make_environment, make_latency


@pytest.fixture
def store(tmp_path):
    """Return the path of a store with a device and a reference."""
    path = tmp_path / "runs.json"
    path.write_bytes(document(make_run(id="d"), make_reference(id="r")))
    return str(path)


def run(*arguments):
    """Run the command; an error of ours comes through."""
    return CliRunner().invoke(compare, list(arguments), catch_exceptions=False, standalone_mode=True)


def test_json_prints_rows_and_what_was_left_out(store):
    """One document on standard output and nothing else."""
    result = run("--reference", "reference", "--ledger", store, "--json")
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert [row["device"] for row in printed["rows"]] == ["server-1", "pi-1"]
    assert printed["left_out"] == []


def test_power_modes_of_one_board_are_answered_in_a_sentence(tmp_path):
    """Below the table and in JSON, of the device's runs and of no others."""
    path = tmp_path / "runs.json"
    modes = [
        make_run(id=f"{mode}{number}", environment=make_environment(power_mode=mode), latency=make_latency(p50_ms=p50_ms))
        for mode, p50_ms in (("0 15W", 40.0), ("1 25W", 29.0))
        for number in range(3)
    ]
    path.write_bytes(document(*modes, make_reference(id="r")))
    (answer,) = json.loads(run("--reference", "reference", "--ledger", str(path), "--json").stdout)["answer"]
    assert answer["device"] == "pi-1"
    assert answer["summary"].startswith("fastest: 25W (p50 29 ms)")
    printed = run("--reference", "reference", "--ledger", str(path)).stdout
    assert f"on pi-1: {answer['summary']}" in printed
    assert "Power mode" in printed


def test_csv_prints_a_header_and_a_line_per_row(store):
    """The device is compared with the reference in its line."""
    result = run("--reference", "server-1", "--ledger", store, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["device"], row["latency_p50_ratio"]) for row in rows] == [("server-1", "1.0"), ("pi-1", "5.0")]


@pytest.mark.services
def test_html_writes_a_page_and_prints_where(store, tmp_path):
    """The place goes to standard error, so that standard output stays the result."""
    page = tmp_path / "report.html"
    result = run("--reference", "reference", "--ledger", store, "--json", "--output", str(page))
    assert json.loads(result.stdout)["rows"]
    assert f"the report: {page}" in result.stderr
    assert page.read_text().startswith("<!doctype html>")


def test_stores_may_be_given_several_times(tmp_path):
    """A board's file and a server's."""
    board, server = tmp_path / "board.json", tmp_path / "server.json"
    board.write_bytes(document(make_run()))
    server.write_bytes(document(make_reference()))
    result = run("--reference", "server-1", "--ledger", str(board), "--ledger", str(server), "--json")
    assert len(json.loads(result.stdout)["rows"]) == 2


def test_without_a_store_the_ledger_below_the_home_is_read(tmp_path, monkeypatch):
    """And when it is not there, the message names it."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=str(tmp_path / "ledger.sqlite")):
        run("--reference", "reference")


def test_a_limit_on_models_is_refused_with_what_to_do():
    """Before anything is measured, in one line."""
    for words in (["a.onnx", "b.onnx", "--fail-on", "slower:5%"], ["--models", "a.onnx", "b.onnx", "--fail-on=slower:5%"]):
        outcome = edgemeter("compare", *words)
        assert (outcome.returncode, len(outcome.stderr.splitlines())) == (2, 1)
        assert "then edgemeter compare OLD.json NEW.json --fail-on slower:5%" in outcome.stderr


@pytest.mark.services
def test_an_empty_store_and_an_unwritable_page_are_errors_of_ours(store, tmp_path):
    """Each with its remedy, none with a traceback."""
    empty = tmp_path / "empty.json"
    empty.write_text('{"runs": []}')
    with pytest.raises(UnavailableError, match="has no run yet"):
        run("--reference", "reference", "--ledger", str(empty))
    with pytest.raises(ConfigError, match="cannot write the report"):
        run("--reference", "reference", "--ledger", store, "--output", str(tmp_path / "no" / "report.html"))


@pytest.mark.parametrize(("reference", "status"), [("nobody", 2), ("reference", 0)])
def test_the_command_as_installed_ends_an_error_as_one_line(store, reference, status):
    """Exit status and standard error as a script sees them."""
    command = [*EDGEMETER, "compare", "--reference", reference, "--ledger", store]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert completed.returncode == status
    assert len(completed.stderr.splitlines()) == (1 if status else 0)


def test_the_python_api_offers_the_level_now_and_all_days(tmp_path):
    """The same figures as the command's."""
    path = tmp_path / "runs.json"
    path.write_bytes(document(*level_runs(stepped_ms(60, 40, 1.1)), make_reference(id="r", ap=None)))
    for days, runs, earlier in (("current", 20, 40), ("all", 60, None)):
        (row,) = (case for case in python_store.compare(str(path), reference="reference", days=days) if case["device"] == "pi-1")
        assert (row["runs"], row["earlier_runs"]) == (runs, earlier)
        assert len(python_store.left_out(str(path), reference="reference", days=days)) == (earlier or 0)
