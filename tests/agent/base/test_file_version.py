"""Facts about files that go on with the next release, and back with the one before: by releases that differ in their formats."""

import base64
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from edgemeter.agent.base import file_version, sqlite_file
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.file_version import FileFormat
from edgemeter.agent.contract import record
from edgemeter.agent.contract.record import Series
from edgemeter.agent.delivery import outbox_file
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.ledger import sqlite_ledger
from edgemeter.agent.ledger.ledger_file import LEDGER_FORMAT
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.later_formats import NEW, OLD
from tests.fixtures.ledgers import arrival
from tests.fixtures.record_factory import make_record
from tests.fixtures.small_disk import small_disk

FIRST = FileFormat("ledger", 1, 1, "CREATE TABLE t (value);\n", "give the path of a ledger")
# A further table: earlier programs need not know it.
SECOND = replace(
    FIRST, version=2, min_version=1, schema=FIRST.schema + "CREATE TABLE more (value);\n", upgrades={1: "CREATE TABLE more (value)"}
)
# Another name: earlier programs would fail.
THIRD = replace(
    SECOND,
    version=3,
    min_version=3,
    schema=SECOND.schema.replace("TABLE t (value)", "TABLE t (number)"),
    upgrades={**SECOND.upgrades, 2: "ALTER TABLE t RENAME COLUMN value TO number"},
)


def written(path, form, value):
    """Write a value by a program that knows this format; return all values."""
    with sqlite_file.Database(path, form) as database:
        with database.transaction() as connection:
            connection.execute("INSERT INTO t VALUES (?)", (value,))
        return [row[0] for row in database.query("SELECT * FROM t")]


def big_series():
    """Return raw samples that no compression makes smaller: 130 kB."""
    return Series(name="latency", unit="ns", dtype="<u4", count=24_000, data=base64.b64encode(os.urandom(96_000)).decode())


def names(path):
    """Return the files beside a path."""
    return sorted(entry.name for entry in path.parent.iterdir() if not entry.name.endswith(("-wal", "-shm")))


def test_a_change_that_earlier_programs_need_not_know_is_made_in_place(tmp_path):
    """They go on writing the same file, and no copy takes room."""
    path = tmp_path / "file"
    assert [written(path, form, form.version) for form in (FIRST, SECOND, FIRST, SECOND)] == [[1], [1, 2], [1, 2, 1], [1, 2, 1, 2]]
    assert names(path) == ["file"]


def test_a_program_that_was_rolled_back_goes_on_with_the_copy_from_before(tmp_path, caplog):
    """What the later one wrote is put aside, and named; a file of two versions before is brought on in one go."""
    path = tmp_path / "file"
    written(path, FIRST, 1)
    assert written(path, THIRD, 2) == [1, 2]
    assert names(path) == ["file", "file.before-v3"]
    assert written(path, FIRST, 3) == [1, 3]
    assert names(path) == ["file", "file.aside-v3"]
    assert "put aside as 'file.aside-v3'" in caplog.text
    assert [row[0] for row in sqlite_file.Database(path.with_name("file.aside-v3"), THIRD).query("SELECT number FROM t")] == [1, 2]
    written(path, THIRD, 4)
    assert written(path, FIRST, 5) == [1, 3, 5]
    assert names(path) == ["file", "file.aside-v3", "file.aside-v3-again"]


def test_a_later_file_without_a_copy_is_refused(tmp_path):
    """It was made by a later program, or the copy is too old to be there still."""
    path = tmp_path / "file"
    written(path, THIRD, 1)
    with pytest.raises(ConfigError, match="has version 3, this edgemeter knows up to 1: update edgemeter here"):
        written(path, FIRST, 2)
    path.unlink()
    written(path, FIRST, 1)
    written(path, THIRD, 2)
    copy = path.with_name("file.before-v3")
    file_version.drop_old_copies(path)
    assert copy.exists()
    os.utime(copy, (time.time() - 15 * 86_400,) * 2)
    file_version.drop_old_copies(path)
    assert not copy.exists()


def test_a_file_that_another_program_uses_is_not_put_aside(tmp_path, monkeypatch):
    """The later one still runs."""
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_S", 0.2)
    path = tmp_path / "file"
    written(path, FIRST, 1)
    with sqlite_file.Database(path, THIRD) as later:
        later.query("SELECT * FROM t")
        with pytest.raises(TransientError):
            written(path, FIRST, 2)
    assert written(path, FIRST, 2) == [1, 2]


def test_without_room_for_the_copy_nothing_is_changed(tmp_path):
    """The program from before can go on."""
    with small_disk(tmp_path / "disk", 4) as disk:
        path, filler = disk / "file", disk / "filler"
        with sqlite_file.Database(path, FIRST) as database, database.transaction() as connection:
            connection.execute("INSERT INTO t VALUES (randomblob(1500000))")
        filler.write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - 300_000))
        with pytest.raises(
            UnavailableError, match=r"cannot be copied before it is changed to version 3 .*: free \d+ MB; nothing was changed"
        ):
            written(path, THIRD, 2)
        assert "file.before-v3" not in names(path)
        filler.unlink()
        assert len(written(path, FIRST, 2)) == 2


def test_an_outbox_is_rolled_back_and_brought_on_again_and_every_record_is_sent(tmp_path, monkeypatch):
    """With raw samples, under numbers that are never given twice."""
    path = tmp_path / "outbox.sqlite"
    records = []
    for form in (OLD, NEW, OLD, NEW, OLD, NEW):
        monkeypatch.setattr(outbox_file, "FORMAT", form)
        with Outbox(path) as outbox:
            records += [outbox.put(make_record(id=f"run-{len(records)}")) for _ in range(3)]
    with Outbox(path) as outbox:
        waiting = [(entry.session, entry.seq, entry.payload) for entry in outbox.pending(1000, 10**9)]
    assert {(run.session, run.seq) for run in records} == {(session, seq) for session, seq, _ in waiting}
    assert len(waiting) == len(records) == 18
    assert all(b'"samples":[{' in payload for *_, payload in waiting)
    assert "aside" not in "".join(names(path))


def test_a_ledger_is_rolled_back_and_brought_on_again_and_every_run_is_there(tmp_path, monkeypatch):
    """Its own runs and received ones."""
    path = tmp_path / "ledger.sqlite"
    newer = replace(LEDGER_FORMAT, version=6, min_version=6, upgrades={5: "ALTER TABLE presence ADD COLUMN colour TEXT"})
    for number, form in enumerate((LEDGER_FORMAT, newer, LEDGER_FORMAT, newer)):
        monkeypatch.setattr(sqlite_ledger, "LEDGER_FORMAT", form)
        with SqliteLedger(path) as ledger:
            ledger.keep_own(make_record(session=number + 1, seq=1, id=f"own-{number}"), 10**9)
            ledger.commit([arrival(make_record(session=number + 1, seq=2, id=f"received-{number}"))])
    with SqliteLedger(path) as ledger:
        assert {entry.record.id for entry in ledger.records()} == {
            f"{kind}-{number}" for kind in ("own", "received") for number in range(4)
        }
        assert ledger.query("SELECT count(*) FROM chunks WHERE is_own")[0][0] == 4
    assert "aside" not in "".join(names(path))


def test_the_quarantine_and_what_collides_come_along(tmp_path, monkeypatch):
    """An invalid record, and one whose number was given to another meanwhile: neither goes with the file that is deleted."""
    path = tmp_path / "ledger.sqlite"
    later = replace(LEDGER_FORMAT, version=6, min_version=6, upgrades={5: "ALTER TABLE presence ADD COLUMN colour TEXT"})
    SqliteLedger(path).close()
    monkeypatch.setattr(sqlite_ledger, "LEDGER_FORMAT", later)
    with SqliteLedger(path) as ledger:
        invalid = make_record(session=1, seq=1, id="invalid")
        payload = record.encode(invalid).replace(b'"batch":1', b'"batch":"x"')
        ledger.commit([arrival(invalid)._replace(payload=payload, is_checked=False), arrival(make_record(session=1, seq=2, id="second"))])
        ledger.commit([], [Rejection("edgemeter/v1/lab/pi-1/result", b"nonsense", "no record", 7)])
    monkeypatch.setattr(sqlite_ledger, "LEDGER_FORMAT", LEDGER_FORMAT)
    with SqliteLedger(path) as ledger:
        ledger.commit([arrival(make_record(session=1, seq=2, id="cloned"))])
    monkeypatch.setattr(sqlite_ledger, "LEDGER_FORMAT", later)
    with SqliteLedger(path) as ledger:
        assert [entry.record.id for entry in ledger.records()] == ["cloned"]
        payloads = b" ".join(entry.payload for entry in ledger.quarantined())
        assert [name in payloads for name in (b"nonsense", b'"id":"invalid"', b'"id":"second"')] == [True, True, True]
    assert names(path) == ["ledger.sqlite", "ledger.sqlite.before-v6"]


def test_what_was_put_aside_waits_for_room_and_the_outbox_goes_on(tmp_path, monkeypatch):
    """A full disk stops neither the measuring nor what is new."""
    with small_disk(tmp_path / "disk", 16) as disk:
        path, filler = disk / "outbox.sqlite", disk / "filler"
        for form in (OLD, NEW):
            monkeypatch.setattr(outbox_file, "FORMAT", form)
            with Outbox(path) as outbox:
                for seq in range(20):
                    outbox.put(make_record(id=f"{form.version}-{seq}", samples=(big_series(),)))
        monkeypatch.setattr(outbox_file, "FORMAT", OLD)
        Outbox(path).close()
        monkeypatch.setattr(outbox_file, "FORMAT", NEW)
        filler.write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - 200_000))
        with Outbox(path) as outbox:
            assert outbox.count() >= 20
        assert f"outbox.sqlite.aside-v{NEW.version}" in names(path)
        filler.unlink()
        with Outbox(path) as outbox:
            assert outbox.count() == 40
        assert f"outbox.sqlite.aside-v{NEW.version}" not in names(path)


def test_whoever_only_reads_leaves_a_later_file_where_it_is(tmp_path):
    """A later program beside this one may be the one in use."""
    path = tmp_path / "file"
    written(path, FIRST, 1)
    written(path, THIRD, 2)
    with pytest.raises(ConfigError, match="update edgemeter here"):
        sqlite_file.Database(path, FIRST, "read")
    assert names(path) == ["file", "file.before-v3"]


PROGRAM = """import sys
from pathlib import Path
from edgemeter.agent.delivery import outbox_file
from edgemeter.agent.delivery.outbox import Outbox
from tests.fixtures.later_formats import NEW, OLD
from tests.fixtures.record_factory import make_record
path, prefix = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
for number in range(10**6):
    outbox_file.FORMAT = (OLD, NEW)[number % 2]
    with Outbox(path) as outbox:
        name = f"{prefix}-{number}"
        outbox.put(make_record(id=name))
        print(name, flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_moment_of_a_change_no_record_is_lost(tmp_path, monkeypatch):
    """Going on and back all the time; after each kill another program goes on."""
    path = tmp_path / "outbox.sqlite"
    confirmed = set()
    for kill in range(25):
        command = [sys.executable, "-c", PROGRAM, str(path), f"k{kill}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.02 + 0.013 * kill)
            process.send_signal(signal.SIGKILL)
            confirmed |= set(process.stdout.read().split("\n")[:-1])
    monkeypatch.setattr(outbox_file, "FORMAT", NEW)
    with Outbox(path) as outbox:
        payloads = b"".join(entry.payload for entry in outbox.pending(10**6, 10**12))
    assert len(confirmed) > 25
    assert [name for name in confirmed if f'"id":"{name}"'.encode() not in payloads] == []
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
