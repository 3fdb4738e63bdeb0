"""Test `edgemeter compare` on stored runs.

The tests cover every form and store, the choice, two sides and their gate, and errors of one line.
"""

import csv
import io
import json
import re

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.collector.cli.compare import compare
from tests.fixtures.bundle_factory import write_bundle
from tests.fixtures.choice_cases import sides
from tests.fixtures.comparison_factory import (
    day_by_day,
    document,
    document_at,
    make_reference,
    make_run,
)
from tests.fixtures.ledgers import fill
from tests.fixtures.level_factory import level_runs, stepped_ms
from tests.fixtures.record_factory import make_environment, make_latency
from tests.fixtures.rows import table_row
from tests.fixtures.side_factory import make_side

NOISE = (0.99, 1.0, 1.01)


@pytest.fixture
def store(tmp_path):
    """Return the path of a store with a device and a reference."""
    return str(document_at(tmp_path / "runs.json", make_run(id="d"), make_reference(id="r")))


def run(*arguments):
    return CliRunner().invoke(
        compare, list(map(str, arguments)), catch_exceptions=False, standalone_mode=True
    )


def test_json_and_csv_have_the_rows(store, tmp_path):
    """Standard output is one document and nothing else, and a store may be given twice."""
    server = tmp_path / "server.json"
    server.write_bytes(document(make_reference(id="other")))
    result = run(
        "--reference", "reference", "--ledger", store, "--ledger", server, "--format", "json"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    printed = json.loads(result.stdout)
    assert [row["device"] for row in printed["rows"]] == ["server-1", "pi-1"]
    assert printed["left_out"] == []
    table = csv.DictReader(
        io.StringIO(run("--reference", "server-1", "--ledger", store, "--format", "csv").stdout)
    )
    assert [(row["device"], row["latency_p50_ms_ratio"][:3]) for row in table] == [
        ("server-1", ""),
        ("pi-1", "5.0"),
    ]


def test_an_absent_or_empty_store_is_an_error_of_ours(tmp_path, monkeypatch):
    """Without a store the ledger below the home is read, and is named if it is absent."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=str(tmp_path / "ledger.sqlite")):
        run("--reference", "reference")
    (tmp_path / "empty.json").write_text('{"runs": []}')
    with pytest.raises(UnavailableError, match="no run"):
        run("--reference", "reference", "--ledger", str(tmp_path / "empty.json"))


def test_power_modes_of_one_board_are_a_table_with_marks(tmp_path):
    """The marks are below the table and in JSON, and only those of the device's runs."""
    path = tmp_path / "runs.json"
    modes = [
        make_run(
            id=f"{mode}{number}",
            environment=make_environment(power_mode=mode),
            latency=make_latency(p50_ms=p50_ms),
        )
        for mode, p50_ms in (("0 15W", 40.0), ("1 25W", 29.0))
        for number in range(3)
    ]
    path.write_bytes(document(*modes, make_reference(id="r")))
    (answer,) = json.loads(
        run("--reference", "reference", "--ledger", path, "--format", "json").stdout
    )["answer"]
    assert answer["title"].endswith("on pi-1")
    assert {mode: "fastest" in marks for mode, marks in answer["modes"].items()} == {
        "15W": False,
        "25W": True,
    }
    printed = run("--reference", "reference", "--ledger", path).stdout
    assert re.search(r"^ *25W +fastest", printed, re.MULTILINE)


def test_the_level_now_is_compared_or_all_days(tmp_path):
    """Runs before the present level are left out, each with its reason."""
    path = document_at(
        tmp_path / "runs.json",
        *level_runs(stepped_ms(60, 40, 1.1)),
        make_reference(id="r", ap=None),
    )
    for options, runs, earlier in (((), 20, 40), (("--all-days",), 60, None)):
        answer = json.loads(
            run("--reference", "reference", "--ledger", path, *options, "--format", "json").stdout
        )
        (row,) = (case for case in answer["rows"] if case["device"] == "pi-1")
        assert (row["runs"], row["earlier_runs"]) == (runs, earlier)
        assert len(answer["left_out"]) == (earlier or 0)


def test_what_matters_is_a_percentage_or_a_ratio(tmp_path):
    """Both forms are one number: 20% slower counts at 3% and does not at 30%."""
    runs = day_by_day(
        [make_run(p50_ms=2.4 * factor) for factor in NOISE],
        [make_reference(p50_ms=2 * factor) for factor in NOISE],
    )
    path = document_at(tmp_path / "runs.json", *runs)
    outcomes = []
    for text in ("3%", "30%", "0.3"):
        row = json.loads(
            run(
                "--reference", "reference", "--ledger", path, "--matters", text, "--format", "json"
            ).stdout
        )["rows"][1]
        outcomes.append(row["latency_p50_ms_outcome"])
    assert outcomes == ["worse", "no difference", "no difference"]


@pytest.fixture
def choices(tmp_path):
    """Return a document of two cases, fp32 and int8, each over eight days."""
    runs = [replace(run, id=f"run-{index}") for index, run in enumerate(day_by_day(*sides()))]
    return str(document_at(tmp_path / "runs.json", *runs))


def test_the_exit_status_of_a_choice_tells_whether_a_case_is_recommended(choices):
    """The exit status is 1 where no case is sure to meet the limits.

    The cases are compared with the recommended one.
    """
    for limits, status, recommended in (
        ("p50<=8ms", 0, "int8 on litert"),
        ("p99<=33ms", 1, None),
        ("p50<=1ms", 1, None),
    ):
        with table_row(limits):
            result = run("--ledger", choices, "--require", limits)
            assert (result.exit_code, f"recommended: {recommended or 'none'}" in result.stdout) == (
                status,
                True,
            )
            # Also in the table: the first case is only the reference there.
            assert bool(re.search(r"^recommended ", result.stdout, re.MULTILINE)) == (
                recommended is not None
            )
    rows = json.loads(run("--ledger", choices, "--cheapest", "p50", "--format", "json").stdout)[
        "rows"
    ]
    assert [(row["precision"], row["reference_precision"]) for row in rows] == [
        ("int8", "int8"),
        ("fp32", "int8"),
    ]
    result = run("--ledger", choices, "--require", "p50<=8ms", "--reference", "pi-1")
    assert (result.exit_code, "recommended: tiny-detector int8" in result.stdout) == (0, True)
    with pytest.raises(ConfigError, match="'nobody'"):
        run("--ledger", choices, "--require", "p50<=8ms", "--reference", "nobody")


def test_the_gate_passes_fails_or_cannot_tell(tmp_path):
    """An undecided gate is a failure unless the command says otherwise.

    Without a gate, a comparison is a success.
    """
    files = {}
    for name, changes in {
        "base": {},
        "same": {"seed": 2},
        "slow": {"factor": 1.2},
        "wild": {"spread": 0.2, "seed": 3},
    }.items():
        files[name] = tmp_path / f"{name}.json"
        files[name].write_bytes(
            document(*make_side(agent="1", start=0 if name == "base" else 20_000, **changes))
        )
    for new, arguments, status in (
        ("same", (), 0),
        ("slow", (), 1),
        ("wild", (), 1),
        ("wild", ("--inconclusive", "pass"), 0),
        ("slow", ("--inconclusive", "pass"), 1),
    ):
        with table_row((new, *arguments)):
            for form in ("table", "markdown", "json"):
                result = run(
                    files["base"],
                    files[new],
                    "--fail-on",
                    "slower:5%",
                    "--format",
                    form,
                    *arguments,
                )
                assert (result.exit_code, bool(result.stdout)) == (status, True)
    passed = run(
        files["base"],
        files["wild"],
        "--fail-on",
        "slower:5%",
        "--format",
        "markdown",
        "--inconclusive",
        "pass",
    )
    assert "### Edgemeter: **inconclusive, which passes: slower:5%" in passed.stdout
    assert run(files["base"], files["slow"]).exit_code == 0
    assert run(files["base"], files["slow"], "--fail-on", "memory:5%").exit_code == 0


def test_without_a_baseline_the_comment_says_so_and_other_forms_refuse(tmp_path, monkeypatch):
    """The first pull request of a project has no baseline."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    new = document_at(tmp_path / "new.json", *make_side(agent="1"))
    result = run(tmp_path / "none.json", new, "--format", "markdown", "--fail-on", "slower:3%")
    assert (result.exit_code, "none.json" in result.stdout) == (1, True)
    with pytest.raises(ConfigError, match=r"none\.json"):
        run(tmp_path / "none.json", new)
    with pytest.raises(ConfigError, match="'colour' is not a selector"):
        run("?colour=red", new, "--format", "markdown")


def test_more_than_two_sides_have_one_case_each_and_none_twice(tmp_path):
    """The sides are called A, B, C and are compared with A."""
    files = []
    for index, factor in enumerate((1.0, 0.8, 1.2)):
        files.append(tmp_path / f"{index}.json")
        files[-1].write_bytes(
            document(*make_side(agent="1", factor=factor, start=20_000 * index, threads=index + 1))
        )
    rows = json.loads(run(*files, "--format", "json").stdout)["rows"]
    assert [row["latency_p50_ms_outcome"] for row in rows] == [None, "better", "worse"]
    with pytest.raises(ConfigError, match="have the same run"):
        run(files[0], files[1], files[0])
    (tmp_path / "two.json").write_bytes(
        document(*make_side(agent="1"), *make_side(agent="1", start=90_000, threads=4))
    )
    with pytest.raises(ConfigError, match="it has 2 cases"):
        run(files[0], files[1], tmp_path / "two.json")


def test_the_id_of_a_run_stands_for_its_case_in_its_session(tmp_path, monkeypatch):
    """In a session measured in turn both sides are pairs; a single run stands for itself."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    session = {"session_started_at_ns": 20_000 * 86_400 * 10**9}
    runs = [
        replace(
            record,
            id=f"{letter}{record.seq}{'0' * 30}",
            repeat=record.seq - 1,
            seq=record.seq + side * 10,
            **session,
        )
        for side, (letter, factor) in enumerate((("a", 1.0), ("b", 0.5)))
        for record in make_side(agent="1", factor=factor, threads=side + 1, runs=4)
    ]
    alone = make_side(agent="1", threads=8, runs=1, start=90_000, id="c1" + "0" * 30)
    fill(tmp_path / "ledger.sqlite", [*runs, *alone])
    _, row = json.loads(run("a1000000", "b3000000", "--format", "json").stdout)["rows"]
    assert (row["runs"], row["latency_p50_ms_outcome"]) == (4, "better")
    assert len(row["run_ids"]) == len(row["reference_run_ids"]) == 4
    rows = json.loads(run("a1000000", "c1000000", "--format", "json").stdout)["rows"]
    assert [row["runs"] for row in rows] == [4, 1]
    with pytest.raises(ConfigError, match="are the same 4 runs"):
        run("a1000000", "a2000000")
    bundle = write_bundle(tmp_path / "bundles", runs[0])
    rows = json.loads(run(bundle, "b3000000", "--format", "json").stdout)["rows"]
    assert [row["runs"] for row in rows] == [1, 4]


def test_what_makes_no_sense_is_wrong_usage(store):
    """The exit status is 2, before anything is printed as a result."""
    for arguments, words in (
        (("--ledger", store), "--reference"),
        (("--ledger", store, "--reference", "reference", "--matters", "0%"), "--matters"),
        (("--ledger", store, "--cheapest", "beauty"), "beauty"),
        ((store, store, "--ledger", store), "--ledger is for all cases"),
        ((store, "--fail-on", "slower:3%"), "two sides"),
        ((store, store, "--inconclusive", "maybe"), "maybe"),
        ((store, store, "--inconclusive", "pass"), "--fail-on"),
    ):
        with table_row(arguments):
            result = run(*arguments)
            assert (result.exit_code, result.stdout) == (2, "")
            assert words in result.stderr
