"""`edgemeter compare` of stored runs: every form, every store, and errors of one line."""

import csv
import io
import json
import re

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.collector import store as python_store
from edgemeter.collector.cli.compare import compare
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


def test_json_csv_and_the_page_have_the_rows(store, tmp_path):
    """One document on standard output and nothing else: the place of the page goes to standard error. A store may be given twice."""
    page, server = tmp_path / "report.html", tmp_path / "server.json"
    server.write_bytes(document(make_reference(id="other")))
    result = run("--reference", "reference", "--ledger", store, "--ledger", str(server), "--format", "json", "--output", str(page))
    assert (result.exit_code, f"the report: {page}" in result.stderr) == (0, True)
    printed = json.loads(result.stdout)
    assert [row["device"] for row in printed["rows"]] == ["server-1", "pi-1"]
    assert printed["left_out"] == []
    assert page.read_text().startswith("<!doctype html>")
    table = csv.DictReader(io.StringIO(run("--reference", "server-1", "--ledger", store, "--format", "csv").stdout))
    assert [(row["device"], row["latency_p50_ms_ratio"]) for row in table] == [("server-1", "1.0"), ("pi-1", "5.0")]


def test_an_absent_or_empty_store_and_an_unwritable_page_are_errors_of_ours(store, tmp_path, monkeypatch):
    """Without a store the ledger below the home is read, and where it is absent it is named."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=str(tmp_path / "ledger.sqlite")):
        run("--reference", "reference")
    (tmp_path / "empty.json").write_text('{"runs": []}')
    with pytest.raises(UnavailableError, match="no run"):
        run("--reference", "reference", "--ledger", str(tmp_path / "empty.json"))
    with pytest.raises(ConfigError, match="cannot write"):
        run("--reference", "reference", "--ledger", store, "--output", str(tmp_path / "no" / "report.html"))


def test_power_modes_of_one_board_are_a_table_with_marks(tmp_path):
    """Below the table and in JSON, of the device's runs and of no others."""
    path = tmp_path / "runs.json"
    modes = [
        make_run(id=f"{mode}{number}", environment=make_environment(power_mode=mode), latency=make_latency(p50_ms=p50_ms))
        for mode, p50_ms in (("0 15W", 40.0), ("1 25W", 29.0))
        for number in range(3)
    ]
    path.write_bytes(document(*modes, make_reference(id="r")))
    (answer,) = json.loads(run("--reference", "reference", "--ledger", str(path), "--format", "json").stdout)["answer"]
    assert answer["title"].endswith("on pi-1")
    assert {row["name"]: "fastest" in row["marks"] for row in answer["modes"]} == {"15W": False, "25W": True}
    printed = run("--reference", "reference", "--ledger", str(path)).stdout
    assert re.search(r"^ *25W .* fastest", printed, re.MULTILINE)
    assert "Power mode" in printed


def test_the_python_api_offers_the_level_now_and_all_days(tmp_path):
    """The same figures as the command's."""
    path = tmp_path / "runs.json"
    path.write_bytes(document(*level_runs(stepped_ms(60, 40, 1.1)), make_reference(id="r", ap=None)))
    for days, runs, earlier in (("current", 20, 40), ("all", 60, None)):
        (row,) = (case for case in python_store.compare(str(path), reference="reference", days=days) if case["device"] == "pi-1")
        assert (row["runs"], row["earlier_runs"]) == (runs, earlier)
        assert len(python_store.left_out(str(path), reference="reference", days=days)) == (earlier or 0)
