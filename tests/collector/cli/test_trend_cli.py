"""`edgemeter trend` and its annotations, in every form, of the series that were asked for."""

import csv
import io
import json

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.cli.trend import annotate, trend, units
from tests.fixtures.comparison_factory import document, document_at
from tests.fixtures.ledgers import fill
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import make_days, noisy


@pytest.fixture
def store(tmp_path):
    """Return the path of a store with a stepped board and a steady one."""
    path = tmp_path / "runs.json"
    stepped = make_days(
        noisy(100, 70, step_at=50, step_ratio=1.08), firmwares=["a"] * 50 + ["b"] * 20
    )
    path.write_bytes(document(*stepped, *make_days(noisy(100, 70, seed=2), device="pi-2")))
    return str(path)


def run(command, *arguments):
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


def test_json_has_every_figure_of_the_findings(store):
    """The output is one document, with days as people write them."""
    document = json.loads(
        run(trend, "--ledger", store, "--device", "pi-1", "--format", "json").stdout
    )
    energy = next(series for series in document["series"] if series["metric"] == "energy_gross_mj")
    (step,) = energy["steps"]
    assert step["day"] == "2024-11-23"
    assert step["low"] < 8 < step["high"]
    assert step["candidates"] == ["firmware a to b"]
    assert energy["differences_in"] == "per cent"
    assert document["until"] == "2024-12-12"


def test_units_says_when_there_is_nothing_to_judge(store):
    """No run has times of tokens."""
    result = run(units, "--ledger", store, "--figure", "tpot")
    assert (result.stdout, "no board type has an ok run with this figure" in result.stderr) == (
        "",
        True,
    )


def test_csv_has_a_line_a_day(store):
    """The lines are the points themselves, for whoever draws them elsewhere."""
    rows = list(
        csv.DictReader(
            io.StringIO(
                run(
                    trend,
                    "--ledger",
                    store,
                    "--figure",
                    "energy,p50",
                    "--device",
                    "pi-2",
                    "--format",
                    "csv",
                ).stdout
            )
        )
    )
    assert len(rows) == 140
    assert float(rows[0]["value"]) == pytest.approx(100, rel=0.05)
    assert float(rows[70]["value"]) == pytest.approx(1.0, rel=0.05)


def test_the_trend_of_one_board_of_a_ledger_is_that_among_all(tmp_path):
    """A board alone has the same trend as among all boards.

    A condition that nothing fulfils is refused with the names of every board's models.
    """
    path = str(
        fill(
            tmp_path / "ledger.sqlite",
            [*make_days(noisy(100, 20)), *make_days(noisy(90, 20), device="pi-2", model="other")],
        )
    )
    of_board = json.loads(
        run(trend, "--ledger", path, "--device", "pi-2", "--format", "json").stdout
    )
    with pytest.raises(ConfigError, match="other, tiny-detector"):
        run(trend, "--ledger", path, "--device", "pi-2", "--model", "none")
    of_all = json.loads(run(trend, "--ledger", path, "--format", "json").stdout)
    assert (
        of_board["series"]
        == [series for series in of_all["series"] if series["key"]["device"] == "pi-2"]
        != []
    )


def test_an_annotation_on_the_command_line_begins_a_new_level(store):
    """The step is declared from then on; without the annotation it is a finding again."""
    assert (
        run(
            annotate,
            "--ledger",
            store,
            "--device",
            "pi-1",
            "--day",
            "2024-11-23",
            "update of the fleet",
        ).exit_code
        == 0
    )

    def steps():
        printed = run(
            trend, "--ledger", store, "--figure", "energy", "--device", "pi-1", "--format", "json"
        ).stdout
        return [
            (step["state"], step["candidates"])
            for step in json.loads(printed)["series"][0]["steps"]
        ]

    assert steps() == [("declared", ["update of the fleet"])]
    listed = json.loads(run(annotate, "--ledger", store, "--format", "json").stdout)["annotations"]
    assert (listed[0]["day"], listed[0]["device"]) == ("2024-11-23", "pi-1")
    assert "update of the fleet" in run(annotate, "--ledger", store).stdout
    assert run(annotate, "--ledger", store, "--remove", str(listed[0]["number"])).exit_code == 0
    assert [state for state, _ in steps()] == ["confirmed"]


def test_what_makes_no_sense_is_refused(store, tmp_path):
    """Unknown figures, days and devices, and annotations of nothing are refused.

    Conditions that no run fulfils together are refused too.
    """
    for command, arguments in (
        (trend, ("--figure", "speed")),
        (trend, ("--until", "soon")),
        (annotate, ("  ",)),
    ):
        with table_row(arguments):
            assert run(command, "--ledger", store, *arguments).exit_code == 2
    both = document_at(
        tmp_path / "both.json",
        *make_days(noisy(100, 5), fleet="a"),
        *make_days(noisy(100, 5, seed=2), device="pi-2", fleet="b"),
    )
    for command, where, arguments, message in (
        (trend, store, ("--device", "pi-3"), "pi-1, pi-2"),
        (units, store, ("--board", "Pi 6"), "Pi 6"),
        (annotate, store, ("--device", "pi-9", "new power supply"), "pi-1"),
        (trend, both, ("--device", "pi-2", "--fleet", "a"), "fleet 'a', device 'pi-2'"),
    ):
        with table_row(arguments), pytest.raises(ConfigError, match=message):
            run(command, "--ledger", str(where), *arguments)
    assert (
        json.loads(run(annotate, "--ledger", store, "--format", "json").stdout)["annotations"] == []
    )
