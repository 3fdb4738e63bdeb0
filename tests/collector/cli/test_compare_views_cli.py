"""The views of `edgemeter compare`: matrix, front, coverage and nearest."""

import csv
import io
import itertools
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
    row = json.loads(run("--reference", "reference", "--ledger", store, "--json").stdout)["rows"][1]
    assert row["latency_verdict"] == "higher"
    assert row["latency_p50_ratio_low"] < 5 < row["latency_p50_ratio_high"]
    assert (row["interval_over"], row["latency_p50_low_ms"] < 10 < row["latency_p50_high_ms"]) == ("3 days", True)


def test_every_view_is_shown_as_a_table_as_json_and_as_csv(store):
    """The matrix and what is derived from it need no reference; JSON is one document, CSV has a header."""
    for (view, listed), form in itertools.product(
        (("matrix", "best of what is alike"), ("pareto", "on the front"), ("coverage", "never measured"), ("nearest", "differs in data")),
        (None, "json", "csv"),
    ):
        with table_row(view, form):
            reference = ["--reference", "reference"] if view == "nearest" else []
            result = run("--view", view, "--ledger", store, *reference, *(["--format", form] if form else []))
            assert result.exit_code == 0
            if form == "json":
                assert json.loads(result.stdout)[view]
            elif form == "csv":
                assert list(csv.DictReader(io.StringIO(result.stdout)))
            else:
                assert listed in result.stdout


def test_what_makes_no_sense_is_wrong_usage(store):
    """Exit status 2, before anything is printed as a result."""
    for arguments in (
        (),
        ("--view", "nearest"),
        ("--view", "matrix", "--output", "x.html"),
        ("--view", "pareto", "--figure", "throughput"),
        ("--view", "matrix", "--matters", "0%"),
        ("--view", "matrix", "--stale-days", "0"),
    ):
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
        row = json.loads(run("--reference", "reference", "--ledger", str(path), "--matters", text, "--json").stdout)["rows"][1]
        findings.append(row["latency_verdict"])
    assert findings == ["higher", "alike", "alike"]
