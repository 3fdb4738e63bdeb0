"""`edgemeter compare --reference`: its formats and what is wrong usage."""

import json

import pytest
from click.testing import CliRunner

from edgemeter.collector.cli.compare import compare
from tests.fixtures.comparison_factory import OTHER_DATA, day_by_day, document, make_reference, make_run
from tests.fixtures.rows import table_row

NOISE = (0.99, 1.0, 1.01)


@pytest.fixture
def store(tmp_path):
    """Return a store of three runs of a device, three of the reference, and one on other data."""
    runs = day_by_day([make_run(p50_ms=10 * factor) for factor in NOISE], [make_reference(p50_ms=2 * factor) for factor in NOISE])
    path = tmp_path / "runs.json"
    path.write_bytes(document(*runs, make_run("pi-2", data=OTHER_DATA)))
    return str(path)


def run(*arguments):
    """Run the command; an error of ours comes through."""
    return CliRunner().invoke(compare, list(arguments), catch_exceptions=False)


def test_a_row_carries_its_interval_and_verdict(store):
    """For scripts: the state in one word, and the words."""
    row = json.loads(run("--reference", "reference", "--ledger", store, "--format", "json").stdout)["rows"][1]
    assert row["latency_p50_ms_outcome"] == "higher"
    assert row["latency_p50_ms_ratio_low"] < 5 < row["latency_p50_ms_ratio_high"]
    assert (row["interval_over"], row["latency_p50_low_ms"] < 10 < row["latency_p50_high_ms"]) == ("3 days", True)


def test_what_makes_no_sense_is_wrong_usage(store):
    """Exit status 2, before anything is printed as a result."""
    for arguments in ((), ("--output", "x.html"), ("--reference", "reference", "--matters", "0%")):
        with table_row(arguments):
            result = run("--ledger", store, *arguments)
            assert (result.exit_code, result.stdout) == (2, "")


def test_what_matters_is_a_percentage_or_a_ratio(tmp_path):
    """Both forms are one number, and the verdict goes by it: 20% slower counts at 3% and does not at 30%."""
    runs = day_by_day([make_run(p50_ms=2.4 * factor) for factor in NOISE], [make_reference(p50_ms=2 * factor) for factor in NOISE])
    path = tmp_path / "runs.json"
    path.write_bytes(document(*runs))
    findings = []
    for text in ("3%", "30%", "0.3"):
        row = json.loads(run("--reference", "reference", "--ledger", str(path), "--matters", text, "--format", "json").stdout)["rows"][1]
        findings.append(row["latency_p50_ms_outcome"])
    assert findings == ["higher", "alike", "alike"]
