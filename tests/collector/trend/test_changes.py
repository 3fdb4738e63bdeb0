import json
import random

from click.testing import CliRunner

from edgemeter.collector.cli.collector import collector
from edgemeter.collector.trend import watch_file
from edgemeter.collector.trend.changes import change_point_line, changes_of
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import make_energy, make_environment, make_record, make_runtime

DAY_NS = 86_400 * 10**9


def run_on(day, **changed):
    return make_record(started_at_ns=day * DAY_NS, **changed)


def test_a_new_firmware_is_one_change_at_the_first_run_that_has_it():
    """Many runs before and after, of two cases, make one mark."""
    before = [run_on(day, environment=make_environment(firmware="a")) for day in range(5)]
    after = [run_on(day, environment=make_environment(firmware="b")) for day in range(5, 9)]
    (change,) = changes_of([*before, *after])
    assert (change.started_at_ns, change.device, change.kind, change.text) == (
        5 * DAY_NS,
        "pi-1",
        "firmware",
        "firmware: a to b",
    )


def test_records_that_come_late_change_nothing():
    """An outbox that was cut off for days delivers old records after new ones.

    A change back is not lost.
    """
    of_day = {
        day: run_on(day, environment=make_environment(kernel="new" if 3 <= day < 6 else "old"))
        for day in range(9)
    }
    in_order = changes_of(of_day.values())
    assert [(change.started_at_ns // DAY_NS, change.text) for change in in_order] == [
        (3, "kernel: old to new"),
        (6, "kernel: new to old"),
    ]
    late = [of_day[day] for day in (0, 1, 2, 6, 7, 8, 3, 4, 5)]
    assert changes_of(late) == in_order


def test_two_runtimes_in_turn_are_no_change():
    """A suite measures onnx and litert alternately, and only a new version of one is a change.

    A meter that was absent is none.
    """
    versions = {"onnx": ("1.22", "1.22", "1.23"), "litert": ("2.1", "2.1", "2.1")}
    runs = [
        run_on(
            day,
            runtime=make_runtime(name=name, package=name, version=versions[name][day]),
            energy=None if day == 1 else make_energy(),
        )
        for day in range(3)
        for name in versions
    ]
    assert [change.text for change in changes_of(runs)] == ["runtime onnx: 1.22 to 1.23"]


def test_a_point_bears_any_text():
    """Quotes and backslashes of a firmware's name do not break the line."""
    runs = [
        run_on(day, environment=make_environment(firmware=name))
        for day, name in enumerate(('a"b', "c\\"))
    ]
    assert (
        change_point_line(changes_of(runs)[0])
        == f'change,device=pi-1,fleet=lab,kind=firmware text="firmware: a\\"b to c\\\\" {DAY_NS}'
    )


def test_the_command_lists_and_writes_them(influx_place, tmp_path, monkeypatch):
    """InfluxDB has each change once, however often the command writes."""
    path = tmp_path / "ledger.sqlite"
    runs = [
        run_on(
            20_000 + day, session=1, seq=day + 1, environment=make_environment(firmware=f"v{day}")
        )
        for day in range(3)
    ]
    fill(path, runs)
    monkeypatch.setenv("EDGEMETER_INFLUX_TOKEN", influx_place.server.token)
    for _ in range(2):
        result = CliRunner().invoke(
            collector,
            ["changes", "--ledger", str(path), "--influx", influx_place.url, "--format", "json"],
        )
        assert result.exit_code == 0, result.output
    assert [change["text"] for change in json.loads(result.stdout)["changes"]] == [
        "firmware: v0 to v1",
        "firmware: v1 to v2",
    ]
    rows = influx_place.query("SELECT * FROM change")
    assert [(row["device"], row["kind"], row["text"]) for row in rows] == [
        ("pi-1", "firmware", "firmware: v0 to v1"),
        ("pi-1", "firmware", "firmware: v1 to v2"),
    ]


def test_confirmed_steps_and_notes_are_changes_too(tmp_path):
    """A step of a tenth and the new firmware are both listed.

    A person's remark about all devices is listed too.
    """
    path = tmp_path / "ledger.sqlite"
    chance = random.Random(1)  # noqa: S311 - the same series every time, no secret
    runs = []
    for day in range(90):
        gross_mj = (60.0 if day < 60 else 66.0) * chance.gauss(1, 0.005)
        firmware = "a" if day < 60 else "b"
        energy, environment = (
            make_energy(gross_mj=gross_mj, gross_u_mj=0.6),
            make_environment(firmware=firmware),
        )
        runs.append(
            run_on(
                20_000 + day,
                id=f"run-{day}",
                session=1,
                seq=day + 1,
                energy=energy,
                environment=environment,
            )
        )
    fill(path, runs)
    with watch_file.WatchFile(watch_file.watch_file_beside(str(path))) as file:
        watch_file.add_annotation(
            file, watch_file.Annotation(20_010, "moved to the other room", begins_level=False)
        )
    result = CliRunner().invoke(collector, ["changes", "--ledger", str(path), "--format", "json"])
    listed = [
        (change["kind"], change["device"], change["started_at_ns"] // DAY_NS - 20_000)
        for change in json.loads(result.stdout)["changes"]
    ]
    assert ("note", "all", 10) in listed
    assert ("firmware", "pi-1", 60) in listed
    (step,) = [day for kind, _, day in listed if kind == "step"]
    assert abs(step - 60) <= 1
