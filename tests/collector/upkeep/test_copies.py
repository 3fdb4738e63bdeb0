"""Test that copies of a ledger hold what the ledger held at one moment.

No existing file is ever overwritten.
"""

import threading

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.contract import record
from edgemeter.agent.ledger.chunks import arrived
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.trend import watch_file
from edgemeter.collector.upkeep import copies
from tests.fixtures.fleet_ledger import Fleet, write_ledger
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row
from tests.fixtures.small_disk import small_disk

DAY_NS = 86_400 * 10**9


def runs_of(path):
    with SqliteLedger(path, "read") as ledger:
        return [record.record.id for record in ledger.records()]


def keep(path, *seqs, received_ns=7, session=1):
    records = [make_record(id=f"{session}-{seq}", session=session, seq=seq) for seq in seqs]
    with SqliteLedger(path) as ledger:
        ledger.commit([arrived(run, record.encode(run), "t", received_ns) for run in records])


def test_a_backup_brought_back_is_the_ledger_as_it_was(tmp_path):
    """Records, order, used numbers, positions of sinks and annotations are the same.

    A collector can go on with it.
    """
    path, copy = tmp_path / "ledger.sqlite", tmp_path / "elsewhere" / "copy.sqlite"
    keep(path, 1, 2, 3)
    with watch_file.open_watch(path) as file:
        watch_file.add_annotation(file, watch_file.Annotation(7, "new supply"))
    with SqliteLedger(path) as ledger:
        ledger.advance("a sink", 2)
        named = ledger.identity()
    outcome = copies.backup(path, copy)
    assert (outcome.runs, outcome.files) == (3, (copy, watch_file.watch_file_beside(str(copy))))
    keep(path, 4)
    for ledger_file in tmp_path.glob("ledger*"):
        ledger_file.unlink()
    assert copies.restore(copy, path).runs == 3
    assert runs_of(path) == ["1-1", "1-2", "1-3"]
    with SqliteLedger(path) as ledger:
        assert (ledger.position("a sink"), ledger.identity()) == (2, named)
        assert ledger.connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert [annotation.text for annotation in watch_file.annotations_of(str(path))] == [
        "new supply"
    ]
    keep(path, 3, 4)
    assert runs_of(path) == ["1-1", "1-2", "1-3", "1-4"]


def test_a_restore_overwrites_nothing(tmp_path):
    """A write-ahead log without its ledger stays too, as it would be read into the restored one."""
    path, copy = tmp_path / "old" / "ledger.sqlite", tmp_path / "copy.sqlite"
    keep(path, 1)
    copies.backup(path, copy)
    for name in ("ledger.sqlite", "ledger.sqlite-wal"):
        with table_row(name):
            folder = tmp_path / f"with {name}"
            folder.mkdir()
            (folder / name).write_bytes(b"mine")
            with pytest.raises(ConfigError, match="exists: stop the collector"):
                copies.restore(copy, folder / "ledger.sqlite")
            assert (folder / name).read_bytes() == b"mine"


def test_a_backup_while_a_collector_writes_is_of_one_moment(tmp_path):
    """Every copy has a whole beginning of what was committed, and the writer is not stopped."""
    path = tmp_path / "ledger.sqlite"
    keep(path, 1)
    stop = threading.Event()
    written = [1]

    def write():
        with SqliteLedger(path) as ledger:
            while not stop.is_set() and written[-1] < 5000:
                run = make_record(id=f"1-{written[-1] + 1}", session=1, seq=written[-1] + 1)
                ledger.commit([arrived(run, record.encode(run), "t", 7)])
                written.append(written[-1] + 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            before = written[-1]
            copy = tmp_path / f"copy{number}.sqlite"
            copies.backup(path, copy)
            ids = runs_of(copy)
            assert ids == [f"1-{seq}" for seq in range(1, len(ids) + 1)]
            assert len(ids) >= before
    finally:
        stop.set()
        writer.join()
    assert len(runs_of(path)) == written[-1]


def test_what_is_no_backup_is_refused_and_leaves_nothing_behind(tmp_path):
    """The files are an empty one, a foreign one, and a backup with overwritten pages."""
    path, copy, target = (
        tmp_path / "ledger.sqlite",
        tmp_path / "copy.sqlite",
        tmp_path / "new" / "ledger.sqlite",
    )
    write_ledger(path, Fleet(devices=3, days=20, cases=4))
    copies.backup(path, copy)
    content = bytearray(copy.read_bytes())
    content[8192:-4096] = b"\xa5" * (len(content) - 12288)
    for damaged in (b"", b"no database", bytes(content)):
        with table_row(damaged[:20]):
            copy.write_bytes(damaged)
            with pytest.raises(EdgemeterError):
                copies.restore(copy, target)
            assert not target.exists()
            assert list(target.parent.glob("*.part")) == []


@pytest.mark.services
def test_a_full_disk_leaves_no_half_of_a_copy(tmp_path):
    """The error is one line, and the folder is as it was."""
    path = tmp_path / "ledger.sqlite"
    write_ledger(path, Fleet(devices=40, days=40, cases=4))
    with small_disk(tmp_path / "small", 1) as folder:
        with pytest.raises(UnavailableError):
            copies.backup(path, folder / "copy.sqlite")
        assert list(folder.iterdir()) == []


def test_the_numbers_of_a_ledger_are_those_of_its_records(tmp_path):
    """Runs, devices, cases and verdicts are counted another way; the parts make up the file."""
    path = tmp_path / "ledger.sqlite"
    write_ledger(path, Fleet(devices=7, days=30, cases=4))
    keep(path, 1)
    with SqliteLedger(path, "read") as ledger:
        records, stats = [record.record for record in ledger.records()], ledger.stats()
    assert (stats.runs, stats.devices) == (len(records), len({run.device for run in records}))
    assert stats.cases == len(
        {(run.device, run.model.name, run.runtime.name, run.precision) for run in records}
    )
    assert stats.verdicts == {
        state: sum(run.verdict.state == state for run in records)
        for state in sorted({run.verdict.state for run in records})
    }
    assert (stats.chunks, stats.chunks_with_samples) == (31, 31)
    sizes = {part.name: part.size_bytes for part in stats.parts}
    inside = sum(size for name, size in sizes.items() if "wal" not in name and "beside" not in name)
    with SqliteLedger(path, "read") as ledger:
        pages, page_bytes = (
            ledger.connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "page_size")
        )
    assert inside == pages * page_bytes


def test_the_commands_do_as_their_functions(tmp_path):
    """Backup, restore and status run from the command line; an absent ledger is one line."""
    path, copy, second_copy = (
        tmp_path / "ledger.sqlite",
        tmp_path / "copy.sqlite",
        tmp_path / "again.sqlite",
    )
    keep(path, 1, 2)
    run = CliRunner().invoke
    assert run(collector, ["backup", str(copy), "--ledger", str(path)]).stdout == f"{copy}\n"
    assert run(collector, ["restore", str(copy), "--ledger", str(second_copy)]).exit_code == 0
    assert runs_of(second_copy) == ["1-1", "1-2"]
    printed = run(collector, ["status", "--ledger", str(second_copy)]).stdout
    assert "2 runs of 1 device, 1 case" in printed
    assert "verdicts of single runs: 2 ok" in printed
    assert (
        '"runs": 2'
        in run(collector, ["status", "--ledger", str(second_copy), "--format", "json"]).stdout
    )
    assert isinstance(
        run(collector, ["status", "--ledger", str(tmp_path / "none")]).exception, ConfigError
    )


def test_the_status_names_what_was_rejected_and_why(tmp_path):
    """The newest rejections come first, a safe line each; beyond twenty their number is given."""
    path = tmp_path / "ledger.sqlite"
    topic = "edgemeter/v1/lab/pi-1/result"
    with SqliteLedger(path) as ledger:
        ledger.commit(
            (),
            [
                Rejection(topic, b"%d" % number, f"no run record, {number}", 7 + number)
                for number in range(22)
            ],
        )
        ledger.commit((), [Rejection(topic, b"x", "\x1b[2J", 99)])
    text = CliRunner().invoke(collector, ["status", "--ledger", str(path)]).stdout
    assert "\x1b" not in text
    named = [
        line.rpartition(", ")[2] for line in text.splitlines() if f"{topic}: no run record" in line
    ]
    assert named == [str(number) for number in range(21, 2, -1)]
