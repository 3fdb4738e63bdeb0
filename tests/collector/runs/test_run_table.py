"""Test that an export has the values of the records, figure for figure, in every format."""

import csv
import io

import msgspec
from click.testing import CliRunner

from edgemeter import load
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.cli.main import cli
from edgemeter.agent.contract.figures import FIGURES, field_name
from edgemeter.collector.influx import points
from edgemeter.collector.runs import run_table
from tests.fixtures.comparison_factory import document, document_at, make_run
from tests.fixtures.fleet_ledger import Fleet, write_ledger
from tests.fixtures.random_records import random_record
from tests.fixtures.record_factory import make_generation, make_generation_energy


def rows_of(runs, names=None):
    out = io.StringIO(newline="")
    run_table.write_csv(
        runs, run_table.every_column() if names is None else run_table.chosen_columns(names), out
    )
    out.seek(0)
    return list(csv.DictReader(out))


def same(text, value, kind):
    if value is None:
        return text == ""
    if kind == "float":
        return float(text) == value
    if kind == "boolean":
        return text == str(value).lower()
    return text == str(value).replace("\0", "\ufffd")


def test_a_csv_read_back_has_every_value_of_every_record():
    """The values have quotes, line ends, commas and extreme numbers, and some are absent."""
    records = [random_record(seed) for seed in range(12)]
    for run, row in zip(records, rows_of(records), strict=True):
        for column in run_table.every_column():
            value = column.value(run)
            assert same(row[column.name], value, column.kind), column.name
            if column.kind == "json" and value is not None:
                assert msgspec.json.decode(row[column.name]) is not None


def test_the_columns_are_named_as_the_fields_and_tags_in_influxdb():
    """A figure has one name everywhere, and no name occurs twice."""
    names = [column.name for column in run_table.every_column()]
    assert len(set(names)) == len(names)
    assert set(names) >= {
        *points.TAGS,
        *points.CASE_TAGS,
        points.ENERGY_PROVENANCE,
        *map(field_name, points.FACTS),
    }
    assert set(names) >= {name for entry in FIGURES for name in (entry.name, *entry.bound_names)}


def test_a_language_model_is_in_a_table_unasked(tmp_path):
    """Rates, times and joules by the token are usual columns of CSV and a notebook.

    They have their units.
    """
    run = make_run(
        generation=make_generation(energy=make_generation_energy()), task="generation", ap=None
    )
    expected = {
        "generation_ttft_p50_ms": run.generation.ttft.p50_ms,
        "generation_decode_tokens_per_s": run.generation.decode_tokens_per_s,
        "generation_energy_output_token_gross_mj": 2000.0,
        "generation_energy_prefill_token_gross_mj": 20.0,
        "generation_prompt_tokens": 512,
    }
    (row,) = rows_of([run], [column.name for column in run_table.chosen_columns()])
    assert {name: float(row[name]) for name in expected} == expected
    (tmp_path / "runs.json").write_bytes(document(run))
    columns = load(tmp_path / "runs.json")
    assert {name: columns[name][0] for name in expected} == expected


def test_the_command_writes_all_runs_of_a_ledger_or_some(tmp_path):
    """Runs are selected by selectors in the source, or by options.

    Standard output is a file too, and several sources are read as one.
    """
    path = tmp_path / "ledger.sqlite"
    write_ledger(path, Fleet(devices=4, days=6, cases=2))
    run = CliRunner().invoke
    result = run(cli, ["report", str(path), "-o", str(tmp_path / "all.csv")])
    assert result.exit_code == 0, result.output
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text())))) == 48
    result = run(
        cli,
        [
            "report",
            f"{path}?device=board-0002&precision=int8",
            "-o",
            "-",
            "--columns",
            "id,device,precision",
        ],
    )
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == 6
    assert {(row["device"], row["precision"]) for row in rows} == {("board-0002", "int8")}
    assert list(tmp_path.glob("*.part")) == []
    by_option = run(
        cli,
        ["report", "--ledger", str(path), "--device", "board-0002", "-o", "-"],
        catch_exceptions=False,
    ).stdout
    assert (
        by_option
        == run(
            cli, ["report", f"{path}?device=board-0002", "-o", "-"], catch_exceptions=False
        ).stdout
    )
    assert len(by_option.splitlines()) == 13
    sources = [f"{path}?device=board-0002", f"{path}?device=board-0001"]
    assert (
        len(run(cli, ["report", *sources, "-o", "-"], catch_exceptions=False).stdout.splitlines())
        == 25
    )


def test_an_unknown_column_and_a_folder_that_is_none_are_one_line(tmp_path):
    """Neither leaves anything behind, and an absent device does not either."""
    path = document_at(tmp_path / "runs.json", make_run())
    for words, kind in (
        ([str(path), "-o", str(tmp_path / "x.csv"), "--columns", "latency"], ConfigError),
        ([str(path), "-o", str(tmp_path / "no" / "x.csv")], UnavailableError),
        ([f"{path}?device=nobody", "-o", str(tmp_path / "x.csv")], UnavailableError),
    ):
        assert isinstance(CliRunner().invoke(cli, ["report", *words]).exception, kind), words
    assert [path.name for path in tmp_path.iterdir()] == ["runs.json"]
