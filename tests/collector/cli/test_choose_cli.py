"""`compare --choose`: the sentence first, an exit status for scripts, and the same in every format."""

import csv
import io
import json

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli.main import cli
from tests.fixtures.choice_cases import sides
from tests.fixtures.comparison_factory import day_by_day, document
from tests.fixtures.rows import table_row


@pytest.fixture
def store(tmp_path):
    """Return a document of two cases, each over eight days."""
    runs = [replace(run, id=f"run-{index}") for index, run in enumerate(day_by_day(*sides()))]
    path = tmp_path / "runs.json"
    path.write_bytes(document(*runs))
    return str(path)


def run(store, *arguments, **how):
    """Run the command on the store."""
    return CliRunner().invoke(cli, ["compare", "--ledger", store, *arguments], **how)


def test_the_sentence_comes_first_and_the_exit_status_is_that_of_the_choice(store):
    """0 where a case is shipped, 1 where none is certain or none meets the limits; against a device or a role that is there."""
    for limits, status, beginning in (
        ("p50<=8ms", 0, "Ship int8 on litert: "),
        ("p99<=33ms", 1, "Ship none yet: "),
        ("p50<=1ms", 1, "Ship none of 2 cases: "),
    ):
        with table_row(limits):
            result = run(store, "--choose", limits)
            assert result.exit_code == status
            assert result.output.startswith(beginning)
    assert "against fp32 on onnx" in run(store, "--choose", "p50<=8ms", "--reference", "pi-1").output
    with pytest.raises(ConfigError, match="'nobody'"):
        run(store, "--choose", "", "--reference", "nobody", catch_exceptions=False, standalone_mode=False)


def test_json_and_csv_have_every_case_with_its_bounds(store):
    """Machines get all digits, and what is missing as null."""
    choice = json.loads(run(store, "--choose", "p50<=8ms, p99<=33ms", "--format", "json").output)
    assert [entry["state"] for entry in choice["candidates"]] == ["may meet", "does not meet"]
    p50, p99 = choice["candidates"][0]["limits"]
    assert p50["low"] < p50["value"] < p50["high"] < 8
    assert (p99["value"], p99["state"]) == (None, "may meet")
    rows = list(csv.DictReader(io.StringIO(run(store, "--choose", "p50<=8ms", "--format", "csv").output)))
    assert [(row["case"], row["state"], row["is_pick"]) for row in rows] == [
        ("int8 on litert", "meets", "true"),
        ("fp32 on onnx", "does not meet", "false"),
    ]


def test_options_that_do_not_go_together_are_usage_errors(store):
    """Each says what to write."""
    for arguments, words in (
        (["--choose-by", "energy"], "--choose"),
        (["--choose", "", "--choose-by", "beauty"], "'beauty'"),
    ):
        with table_row(arguments):
            result = run(store, *arguments)
            assert result.exit_code == 2
            assert words in result.output
