"""The commands `edgemeter runs`, and the ids that they print, in the commands that take a run."""

import csv
import getpass
import io
import json
import socket
from datetime import datetime, timezone

import msgspec
import pytest

from edgemeter.agent.base.console import Console
from edgemeter.agent.bundle.archive import read_bundle
from edgemeter.agent.cli.run_output import print_runs
from edgemeter.agent.contract.messages import Receipt
from edgemeter.agent.contract.record import decode
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import OUTBOX
from edgemeter.agent.ledger.own_runs import OwnRuns
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import in_rounds, make_reference, make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import STARTED_AT_NS, violating
from tests.fixtures.rows import table_row

DAY_NS = 86_400 * 10**9
ME = f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return a home of this machine's own."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ids_of(count):
    """Return ids as runs have them, the first hexadecimal digits of which are their number."""
    return [f"{number:04x}" * 8 for number in range(1, count + 1)]


def test_a_run_that_is_deleted_is_not_delivered_or_is_also_to_be_deleted_where_it_was(home):
    """A deleted run leaves this machine's outbox; copies elsewhere stay.

    The outbox of another ledger is unchanged. A collector's copy of an excluded run stays, too.
    """
    with Outbox(home / OUTBOX) as outbox:
        numbered = [outbox.put(make_run(id=run_id)) for run_id in ids_of(4)]
        own_runs = OwnRuns(home / "ledger.sqlite", 1 << 20)
        for run in numbered:
            own_runs.keep(run)
        assert "will not be" in edgemeter("runs", "delete", "-y", numbered[3].id).stderr
        assert [pending.seq for pending in outbox.pending(10, 1 << 20)] == [1, 2, 3]
        outbox.forget(Receipt(session=numbered[0].session, held=((1, 2),)))
        for command, run in (("delete -y", numbered[0]), ("exclude", numbered[1])):
            outcome = edgemeter("runs", *command.split(), run.id, "--reason", "x")
            assert f"edgemeter runs {command.split()[0]} {run.id[:8]}" in outcome.stderr
        assert (
            "collector" not in edgemeter("runs", "exclude", numbered[2].id, "--reason", "x").stderr
        )


@pytest.fixture
def ledger(home):
    """Return the ids of the runs in this machine's ledger, oldest first.

    They are of two cases of a board, and one of a server.
    """
    runs = [
        make_run(model="small", case="5" * 12),
        make_run(
            model="small",
            case="5" * 12,
            verdict=msgspec.structs.replace(make_run().verdict, state="disturbed"),
        ),
        make_run(model="large", case="6" * 12, p50_ms=30.0),
        make_reference(model="large", case="6" * 12),
    ]
    ids = ids_of(len(runs))
    dated = [
        msgspec.structs.replace(run, id=run_id, started_at_ns=STARTED_AT_NS + day * DAY_NS)
        for day, (run, run_id) in enumerate(zip(runs, ids, strict=True))
    ]
    fill(home / "ledger.sqlite", dated)
    return ids


def listed(*arguments):
    outcome = edgemeter("runs", "--format", "json", *arguments)
    assert outcome.returncode == 0, outcome.stderr
    return [(run["id"], run["state"]) for run in json.loads(outcome.stdout)["runs"]]


def test_an_empty_home_names_the_command_that_measures(home):
    """The exit status is the same as for a run that no ledger holds."""
    for words in (["runs"], ["runs", "show", "3f2a"], ["runs", "delete", "3f2a"]):
        outcome = edgemeter(*words)
        assert outcome.returncode == 2
        assert len(outcome.stderr.splitlines()) == 1
        assert "measure with `edgemeter run" in outcome.stderr
    assert list(home.iterdir()) == []


def test_the_list_is_newest_first_and_narrowed_by_model_device_day_and_number(ledger):
    """Each row begins with the id that other commands take, and threads are a column."""
    table = edgemeter("runs").stdout
    assert "threads" in table.splitlines()[0].split()
    assert [line.split()[0] for line in table.splitlines()[1:]] == [
        run_id[:8] for run_id in reversed(ledger)
    ]
    assert [run_id for run_id, _ in listed("--model", "large")] == [ledger[3], ledger[2]]
    assert [run_id for run_id, _ in listed("--device", "server-1")] == [ledger[3]]
    assert [run_id for run_id, _ in listed("-n", "2")] == [ledger[3], ledger[2]]
    assert "-n 0" in edgemeter("runs", "-n", "2").stderr
    last_day = datetime.fromtimestamp(STARTED_AT_NS / 1e9 + 3 * 86_400, timezone.utc).date()
    assert [run_id for run_id, _ in listed("--since", str(last_day))] == [ledger[3]]
    assert (
        "'none': there are large" in edgemeter("runs", "--model", "none", "--device", "pi-1").stderr
    )


@pytest.mark.usefixtures("ledger")
def test_the_file_of_a_model_finds_its_runs_in_every_command(home):
    """A folder may be named or not; a nearly right name is answered with the right one."""
    run = make_run(id="f" * 32, session=9, seq=9)
    run = msgspec.structs.replace(
        run, model=msgspec.structs.replace(run.model, name="detector", file="detector_int8.onnx")
    )
    fill(home / "ledger.sqlite", [run])
    assert [run_id for run_id, _ in listed("--model", "photos/detector_int8.onnx")] == [run.id]
    assert "did you mean detector" in edgemeter("runs", "--model", "detectr").stderr
    assert edgemeter(
        "report", "?model=detector_int8.onnx", "-o", "-", "--columns", "id"
    ).stdout.splitlines() == ["id", run.id]
    series = json.loads(
        edgemeter("trend", "--model", "detector_int8.onnx", "--all", "--format", "json").stdout
    )["series"]
    assert {entry["key"]["model"] for entry in series} == {"detector"}
    edgemeter("runs", "exclude", run.id, "--reason", "x")
    assert listed("--model", "detector_int8.onnx") == [(run.id, "excluded")]


@pytest.mark.usefixtures("ledger")
def test_what_is_neither_file_nor_run_is_named_as_such_in_every_command():
    """One line has the command that lists the runs, and says how much of an id is enough."""
    for words in (
        ["compare", "3f2a1b9c", "81d0e44a"],
        ["report", "3f2a1b9c"],
        ["trend", "--run", "3f2a1b9c"],
        ["runs", "bundle", "verify", "3f2a1b9c"],
    ):
        with table_row(words):
            outcome = edgemeter(*words)
            assert (outcome.returncode, len(outcome.stderr.splitlines())) == (2, 1)
            assert "'3f2a1b9c'" in outcome.stderr
    assert "too short" in edgemeter("compare", "abc", "abd").stderr


def test_a_run_that_is_excluded_stays_listed_with_its_reason_and_comes_back(ledger):
    """`show` has the whole history with who did it."""
    first = ledger[0]
    assert edgemeter("runs", "exclude", first[:6], "--reason", "the fan was off").returncode == 0
    assert edgemeter("runs", "note", first[:6], "fan replaced").returncode == 0
    assert dict(listed())[first] == "excluded"
    row = edgemeter("runs").stdout.splitlines()[-1]
    assert "excluded" in row
    assert row.rstrip().endswith("the fan was off; fan replaced")
    refused = edgemeter("compare", first[:8], ledger[1][:8])
    assert "edgemeter runs include" in refused.stderr
    edgemeter("runs", "include", first)
    document = json.loads(edgemeter("runs", "show", first[:6], "--format", "json").stdout)
    assert (document["run"]["id"], document["state"]) == (first, "counted")
    assert [(event["action"], event["author"], event["text"]) for event in document["history"]] == [
        ("excluded", ME, "the fan was off"),
        ("noted", ME, "fan replaced"),
        ("included", ME, ""),
    ]
    assert f"{ME} excluded it: the fan was off" in edgemeter("runs", "show", first[:6]).stdout


def test_a_run_is_shown_with_its_case_in_the_figures_that_run_and_compare_print(home):
    """The figures are the same whichever run of the case is named.

    They are the same whatever was disturbed or ran in another session; each run is shown only if
    asked.
    """
    busy = violating("disturbed", "busy-machine")
    runs = in_rounds(
        [make_run(p50_ms=p50_ms) for p50_ms in (10.0, 10.5, 10.2, 10.1)]
        + [make_run(p50_ms=15.0, verdict=busy)]
    )
    unrelated = [
        *in_rounds([make_run(p50_ms=30.0)], started_at_ns=STARTED_AT_NS + DAY_NS),
        *in_rounds([make_run(model="other", p50_ms=5.0)] * 3),
    ]
    ids = ids_of(len(runs) + len(unrelated))
    stored = [
        msgspec.structs.replace(run, id=run_id)
        for run, run_id in zip([*runs, *unrelated], ids, strict=True)
    ]
    fill(home / "ledger.sqlite", stored)
    out = io.StringIO()
    print_runs(stored[:5], Console(file=out, width=80))
    printed = [line.rstrip() for line in out.getvalue().splitlines()]
    for run_id in (ids[0], ids[4]):
        first, *block = edgemeter("runs", "show", run_id[:8]).stdout.splitlines()
        assert (first.partition(",")[0], first.partition(", with ")[2]) == (
            f"run {run_id}",
            "4 other runs of its case in its session",
        )
        assert [line.rstrip() for line in block] == printed
        assert all(
            ids[index][:8] in edgemeter("runs", "show", run_id, "--wide").stdout
            for index in range(5)
        )
    assert printed[2].startswith("  Latency     10.2 ms ± 5%")
    assert "  1 of 5 runs does not count, because it was disturbed." in printed
    table = edgemeter("compare", ids[0], ids[6]).stdout
    assert " 10.2 ± 5% " in table
    assert "\n1 of 8 runs does not count, because it was disturbed.\n" in table
    edgemeter("runs", "exclude", ids[0], "--reason", "the fan was off")
    assert (
        edgemeter("runs", "show", ids[0])
        .stdout.splitlines()[0]
        .endswith("EXCLUDED from statistics")
    )
    assert "with 3 other runs" in edgemeter("runs", "show", ids[4]).stdout


def test_a_run_that_lies_apart_from_its_siblings_is_listed_as_disturbed(home):
    """The list agrees with other commands, though the run's siblings are not listed.

    An excluded run is no sibling any more, and has no verdict.
    """
    runs = in_rounds([make_run(p50_ms=p50_ms) for p50_ms in (10.0, 10.1, 10.2, 15.0)])
    fill(
        home / "ledger.sqlite",
        [
            msgspec.structs.replace(run, id=run_id)
            for run, run_id in zip(runs, ids_of(4), strict=True)
        ],
    )

    def verdicts(*arguments):
        return [
            run["verdict"]
            for run in json.loads(edgemeter("runs", "--format", "json", *arguments).stdout)["runs"]
        ]

    assert verdicts() == ["disturbed", "ok", "ok", "ok"]
    assert [line.split()[-1] for line in edgemeter("runs").stdout.splitlines()[1:]] == verdicts()
    assert verdicts("-n", "1") == ["disturbed"]
    for run_id in ids_of(4)[:2]:
        edgemeter("runs", "exclude", run_id, "--reason", "the fan was off")
    assert verdicts("-n", "2") == verdicts()[:2] == ["ok", "ok"]


def test_deleting_asks_and_a_wrong_id_among_several_deletes_nothing(ledger):
    """A deletion is listed with who did it, when and why."""
    asked_first = edgemeter("runs", "delete", ledger[0])
    assert (asked_first.returncode, "give --yes" in asked_first.stderr) == (2, True)
    assert edgemeter("runs", "delete", "-y", ledger[0], "beef").returncode == 2
    assert len(listed()) == 4
    assert (
        edgemeter(
            "runs", "delete", "-y", ledger[0][:6], ledger[1][:6], "--reason", "wrong model"
        ).returncode
        == 0
    )
    assert [run_id for run_id, _ in listed()] == [ledger[3], ledger[2]]
    deleted = json.loads(edgemeter("runs", "--deleted", "--format", "json").stdout)["deleted"]
    assert [(event["id"], event["author"], event["text"]) for event in deleted] == [
        (run_id, ME, "wrong model") for run_id in ledger[1::-1]
    ]
    assert "wrong model" in edgemeter("runs", "--deleted").stdout


def test_every_command_about_runs_takes_the_beginning_of_an_id(ledger, home):
    """Compare also takes a device, of which the run itself is left out."""
    first, second, third, _ = (run_id[:8] for run_id in ledger)
    (row,) = json.loads(edgemeter("compare", first, second, "--format", "json").stdout)["rows"]
    assert (row["reference_run_ids"], row["run_ids"]) == ([ledger[0]], [ledger[1]])
    (row,) = json.loads(edgemeter("compare", "pi-1", second, "--format", "json").stdout)["rows"]
    assert row["run_ids"] == [ledger[1]]
    assert ledger[1] not in row["reference_run_ids"]
    assert edgemeter("report", first, "-o", "run.html").returncode == 0
    rows = list(
        csv.DictReader(
            io.StringIO(edgemeter("report", first, third, "-o", "-", "--columns", "id").stdout)
        )
    )
    assert [row["id"] for row in rows] == [ledger[0], ledger[2]]
    series_shown = json.loads(
        edgemeter("trend", "--run", third, "--all", "--format", "json").stdout
    )["series"]
    assert {series["key"]["model"] for series in series_shown} == {"large"}
    assert "bundles" in json.loads(
        edgemeter("runs", "bundle", "verify", first, "--format", "json").stdout
    )
    assert (home / "run.html").exists()


def test_runs_by_id_are_written_as_a_table_a_document_or_bundles(ledger, home):
    """The document holds the raw samples, and is a store of its own."""
    assert edgemeter("report", *ledger[:2], "-o", "runs.json").returncode == 0
    runs = json.loads((home / "runs.json").read_text())["runs"]
    assert [decode(json.dumps(run).encode()).id for run in runs] == ledger[:2]
    assert all(run["samples"] for run in runs)
    assert edgemeter("report", ledger[0], "-o", "results/").returncode == 0
    assert read_bundle(home / "results" / f"{ledger[0]}.edgemeter").record.id == ledger[0]
    wrong = edgemeter("report", ledger[0], "-o", "runs.xlsx")
    assert (wrong.returncode, "use .html, .csv, .json, or FOLDER/ for bundles" in wrong.stderr) == (
        2,
        True,
    )
