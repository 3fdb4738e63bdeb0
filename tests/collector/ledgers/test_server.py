"""Test the ledger in PostgreSQL against its server.

The tests cover roles, encryption, settings, versions, texts that cannot be stored, and a lost
connection.
"""

import os
import threading
from contextlib import closing

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    TransientError,
    UnavailableError,
)
from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.base.postgres_session import LedgerSession
from edgemeter.agent.cli.main import cli
from edgemeter.agent.ledger.chunks import ArrivedBatch, pack_chunk
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.run_row import RUN_COLUMNS
from edgemeter.collector.ledgers import postgres_schema
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.trend.watch_file import WATCH_FORMAT
from tests.fixtures.certificates import Authority
from tests.fixtures.comparison_factory import in_rounds, make_reference, make_run
from tests.fixtures.ledgers import arrival, initialised
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.postgresql import Postgresql
from tests.fixtures.record_factory import make_accuracy, make_model, make_record

pytestmark = pytest.mark.postgresql


@pytest.fixture
def lab(postgresql):
    return initialised(postgresql)


@pytest.fixture
def server():
    """Return a running server of the test's own, whose settings it may change."""
    with closing(Postgresql()) as server:
        server.start()
        yield server


def member_of(server, lab, role):
    """Return the address of the ledger for a new user with that role alone."""
    server.sql(f"DROP ROLE IF EXISTS {role}_member")
    server.sql(f"CREATE ROLE {role}_member LOGIN IN ROLE {role}")
    return PostgresAddress(lab.text.replace("edgemeter@", f"{role}_member@"))


def test_a_writer_adds_and_never_changes_or_removes_a_record(postgresql_server, lab):
    """The server refuses a writer's DELETE, UPDATE, CREATE and DROP.

    The writer commits, quarantines, leases and drains.
    """
    writer = member_of(postgresql_server, lab, "edgemeter_write")
    with open_ledger(writer) as ledger:
        assert (
            ledger.commit(
                [arrival(make_record(session=5, seq=1))], [Rejection("t", b"x", "no", 1)]
            ).inserted
            == 1
        )
        assert ledger.lease("drain x")
        assert ledger.advance("x", 1)
        with pytest.raises(ConfigError, match="edgemeter_keep"):
            ledger.forget(Retention(records_days=1), 10**18)
        for statement in (
            "DELETE FROM runs",
            "UPDATE runs SET id = 'x'",
            "DELETE FROM chunks",
            "CREATE TABLE x (y int)",
            "DROP TABLE runs",
        ):
            with (
                pytest.raises(EdgemeterError, match="may not do this"),
                ledger._session.transaction() as cursor,
            ):
                cursor.execute(statement)
        assert ledger.count() == 1


def test_a_keeper_removes_what_retention_does_not_keep(postgresql_server, lab):
    """A reader reads and writes nothing."""
    with open_ledger(member_of(postgresql_server, lab, "edgemeter_keep")) as ledger:
        ledger.commit([arrival(make_record(session=5, seq=1))])
        assert ledger.forget(Retention(records_days=1), 10**18).records == 1
        ledger.commit([arrival(make_record(session=5, seq=2))])
    reader = member_of(postgresql_server, lab, "edgemeter_read")
    with open_ledger(reader, "read") as ledger:
        assert (ledger.count(), ledger.stats().runs) == (1, 1)
    with open_ledger(reader) as ledger, pytest.raises(ConfigError, match="may not do this"):
        ledger.commit([arrival(make_record(session=5, seq=3))])


def test_tables_are_made_once_whoever_asks_and_a_program_of_another_version_is_refused(postgresql):
    """Four processes may ask at once; newer and older versions are refused.

    A database without tables names the command that makes them.
    """
    address = PostgresAddress(postgresql)
    with pytest.raises(ConfigError, match="init-ledger"):
        open_ledger(address)

    def prepare():
        session = LedgerSession(address)
        stored.append(postgres_schema.init_ledger(session, WATCH_FORMAT.schema))
        session.close()

    stored = []
    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("created the tables" in steps for steps in stored) == 1
    for version in (postgres_schema.VERSION + 1, postgres_schema.VERSION - 1):
        remedy = (
            rf"of another version of edgemeter \({version}, not {postgres_schema.VERSION}\): .* "
            r"`edgemeter collector init-ledger`"
        )
        with open_ledger(address) as ledger:
            with ledger._session.transaction() as cursor:
                cursor.execute("UPDATE ledger SET version = %s", (version,))
            with pytest.raises(ConfigError, match=remedy):
                ledger.commit([arrival(make_record(session=5, seq=1))])
            with pytest.raises(ConfigError, match=remedy):
                open_ledger(address)
            prepare()
            assert any("from the records" in step for step in stored[-1])
            assert ledger.commit([arrival(make_record(session=5, seq=version))]).inserted == 1


def test_figures_of_another_version_are_made_anew_from_the_records(lab):
    """The owner of the database rebuilds the figures when preparing it.

    Each run keeps its row, and its verdict among its siblings.
    """
    content = (
        f"SELECT row, siblings, {', '.join(RUN_COLUMNS)} "  # noqa: S608 - our own names
        "FROM runs ORDER BY row"
    )
    subjects = "SELECT * FROM subjects ORDER BY subject"
    runs = in_rounds([make_run(p50_ms=p50_ms) for p50_ms in (10.0, 10.1, 10.2, 10.1, 14.0)])
    with open_ledger(lab) as ledger:
        ledger.commit([arrival(make_record(session=5, seq=seq, job="night")) for seq in (1, 2)])
        ledger.commit(
            [
                arrival(msgspec.structs.replace(run, session=6, seq=seq), 9)
                for seq, run in enumerate(runs, 1)
            ]
        )
        before = ledger.query(content), ledger.query(subjects)
        assert {row[1] for row in before[0]} == {None, 5}
        with ledger._session.transaction() as owner:
            owner.execute("ALTER TABLE runs DROP COLUMN energy_gross_mj")
            owner.execute("DELETE FROM subjects")
            owner.execute("UPDATE ledger SET version = 1")
        with closing(LedgerSession(lab)) as session:
            postgres_schema.init_ledger(session, WATCH_FORMAT.schema)
        assert (ledger.query(content), ledger.query(subjects)) == before
        assert ledger.commit([arrival(make_record(session=5, seq=3))]).inserted == 1


def test_a_record_that_this_version_refuses_has_no_row_and_is_named(lab):
    """The record has an accuracy of 1e308 that an earlier version stored, as in a file."""
    endless = make_record(session=5, seq=2, accuracy=make_accuracy(value=1e308))
    with open_ledger(lab) as ledger:
        ledger.commit(
            [
                arrival(make_record(session=5, seq=1)),
                arrival(endless),
                arrival(make_record(session=5, seq=3)),
            ]
        )
        with ledger._session.transaction() as owner:
            owner.execute("UPDATE ledger SET version = 1")
        with closing(LedgerSession(lab)) as session:
            postgres_schema.init_ledger(session, WATCH_FORMAT.schema)
        assert (ledger.count(), ledger.left_out_count(), ledger.sessions()[0].missing) == (2, 1, 0)
    (entry,) = LedgerStore(lab).left_out()
    assert (entry.run, entry.device) == (endless.id, "pi-1")
    assert "`$.accuracy.value`" in entry.reason


def test_a_row_without_a_subject_is_never_stored(lab):
    """Missing subjects, as after a failover to an old state, are noticed.

    The next try stores them again.
    """
    with open_ledger(lab) as ledger:
        ledger.commit([arrival(make_record(session=5, seq=seq)) for seq in (1, 2)])
        with ledger._session.transaction() as owner:
            owner.execute("DELETE FROM subjects")
        two = [arrival(make_record(session=5, seq=3)), arrival(make_record(session=5, seq=4))]
        with pytest.raises(TransientError, match="was not stored"):
            ledger.commit(two)
        assert ledger.ranges("pi-1", 5) == [(1, 2)]
        assert ledger.commit(two).inserted == 2
        assert [record.record.seq for record in ledger.records()] == [1, 2, 3, 4]


def test_any_text_is_stored_as_it_is(lab):
    """Characters special in an array of PostgreSQL mean nothing in an id or a precision."""
    texts = ['"', "\\", "{a,b}", "NULL", "", " ", 'a"b\\"c', "\t\n'%s?%", "\u00e9\u4e2d\U0001f600"]
    records = [
        make_record(session=5, seq=seq, id=text, precision=text)
        for seq, text in enumerate(texts, 1)
    ]
    with open_ledger(lab) as ledger:
        for _ in range(2):
            assert ledger.commit([arrival(record) for record in records]).collisions == 0
        assert [record.record.id for record in ledger.records()] == texts
        assert [text for (text,) in ledger.query("SELECT id FROM runs ORDER BY row")] == texts
        stored = ledger.query(
            "SELECT precision FROM runs JOIN subjects USING (subject) ORDER BY row"
        )
        assert [text for (text,) in stored] == texts


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_text_that_cannot_be_stored_stops_no_other_record(lab, is_batch):
    """A record with a NUL in a precision or an id is quarantined, and all others are stored."""
    records = [make_record(session=5, seq=seq) for seq in range(1, 20)]
    records[4] = msgspec.structs.replace(records[4], precision="fp\x0032")
    records[11] = msgspec.structs.replace(records[11], model=make_model(name="fine"), id="a\x00b")
    arrivals = [arrival(record) for record in records]
    with open_ledger(lab) as ledger:
        if is_batch:
            body = pack_chunk([arrival.payload for arrival in arrivals])
            result = ledger.commit(
                [],
                [Rejection("edgemeter/\x00", b"x", "a \x00 b", 1)],
                (),
                [ArrivedBatch([arrival.run for arrival in arrivals], body, "t", 7)],
            )
        else:
            result = ledger.commit(arrivals, [Rejection("edgemeter/\x00", b"x", "a \x00 b", 1)])
        assert (result.inserted, sorted(key[3] for key in result.held)) == (
            17,
            [seq for seq in range(1, 20) if seq not in (5, 12)],
        )
        assert ledger.quarantined_count() == 3
        assert [record.record.seq for record in ledger.records()] == [
            seq for seq in range(1, 20) if seq not in (5, 12)
        ]


def test_no_reader_writes_the_password_anywhere(lab, tmp_path, monkeypatch):
    """The password is in no output on a terminal, report, page or error.

    A server that trusts its clients takes any password.
    """
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    where = lab.text.replace("edgemeter@", "edgemeter:s3cr3t@")
    with open_ledger(lab) as ledger:
        ledger.commit(
            [arrival(make_reference(session=5, seq=1)), arrival(make_run(session=5, seq=1))]
        )
    remarks = []
    for command in (
        ["compare", "--ledger", where, "--reference", "reference"],
        ["report", where, "-o", str(tmp_path / "report.html")],
        ["report", where, "-o", "-"],
        ["report", where, "-o", "-", "--device", "nobody"],
        ["trend", "--ledger", where],
        ["trend", "annotate", "--ledger", where, "moved"],
        ["collector", "status", "--ledger", where],
    ):
        result = CliRunner().invoke(cli, command)
        remarks.append(f"{result.output} {result.exception}")
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 1
    assert "s3cr3t" not in "".join(remarks)
    assert not any(b"s3cr3t" in text for text in files)


def test_a_lost_connection_costs_a_retry_and_no_record(postgresql_server, lab):
    """The call after a lost connection fails or reconnects, and no record is stored twice.

    The back-end is ended between two commits.
    """
    with open_ledger(lab) as ledger:
        ledger.commit([arrival(make_record(session=5, seq=1))])
        name = lab.text.rpartition("/")[2]
        postgresql_server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "  # noqa: S608 - of this test
            f"WHERE datname = '{name}'"
        )
        two = arrival(make_record(session=5, seq=2))
        with pytest.raises(UnavailableError, match="does not answer"):
            ledger.commit([two])
        assert ledger.commit([two]).held == (("lab", "pi-1", 5, 2),)
        assert ledger.commit([two]).duplicates == 1
        assert ledger.ranges("pi-1", 5) == [(1, 2)]


def test_a_cancelled_wait_for_a_standby_is_no_commit_that_may_be_receipted(server):
    """The server answers COMMIT with success and a warning.

    Until then `stall` names the cause of the wait.
    """
    address = initialised(server.new_database())
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (nobody)'")
    server.sql("SELECT pg_reload_conf()")
    outcome = []
    first = arrival(make_record(session=5, seq=1))

    def commit():
        with open_ledger(address) as ledger:
            try:
                outcome.append(ledger.commit([first]))
            except EdgemeterError as error:
                outcome.append(error)

    writer = threading.Thread(target=commit)
    writer.start()
    with open_ledger(address, "read") as reader:
        assert wait_until(
            lambda: "wait for a standby (ANY 1 (nobody))" in (reader.stall() or ""), 30
        )
        assert "standbys ANY 1 (nobody)" in reader.safety()
        server.sql(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        )
        writer.join(150)
        assert isinstance(outcome[0], TransientError)
        assert "warned at COMMIT" in str(outcome[0])
        assert reader.count() == 1
    server.sql("ALTER SYSTEM RESET synchronous_standby_names")
    server.sql("SELECT pg_reload_conf()")
    with open_ledger(address) as ledger:
        assert ledger.commit([first]).duplicates == 1


def test_a_server_that_does_not_sync_is_refused_for_writing(server):
    """A receipt would promise too much; readers may read."""
    address = initialised(server.new_database())
    for name in ("synchronous_commit", "fsync"):
        server.stop()
        server.settings = server.settings | {"synchronous_commit": "on", name: "off"}
        server.start()
        with pytest.raises(ConfigError, match=f"{name} = off"):
            open_ledger(address)
    with open_ledger(address, "read") as ledger:
        assert ledger.count() == 0


def test_what_a_receipt_promises_is_what_the_server_does_now(server):
    """Standbys count where commits wait for their disks.

    A server that stops syncing while in use takes no record and no receipt.
    """

    def set_to(value, standbys="*"):
        for statement in (
            f"synchronous_commit = {value}",
            f"synchronous_standby_names = '{standbys}'",
        ):
            server.sql(f"ALTER SYSTEM SET {statement}")
        server.sql("SELECT pg_reload_conf()")

    def settings(ledger):
        return tuple(
            ledger.query(f"SHOW {setting}")[0][0]
            for setting in ("synchronous_commit", "synchronous_standby_names")
        )

    address = initialised(server.new_database())
    with open_ledger(address) as ledger:
        ledger.commit([arrival(make_record(session=5, seq=1))])
        promises = {}
        for value in ("on", "remote_apply", "remote_write", "local"):
            set_to(value)
            assert wait_until(lambda value=value: settings(ledger) == (value, "*"))
            promises[value] = ledger.safety()
        assert (
            promises["on"]
            == promises["remote_apply"]
            == "once written to the disks of the server and of its standbys *"
        )
        assert promises["local"].startswith(
            "once written to the server's disk (synchronous_commit = local"
        )
        assert "not yet to those of its standbys *" in promises["remote_write"]
        assert ledger.commit([arrival(make_record(session=5, seq=2))]).inserted == 1
        set_to("off", standbys="")
        assert wait_until(lambda: "at no time" in ledger.safety())
        with pytest.raises(ConfigError, match="synchronous_commit = off"):
            ledger.commit([arrival(make_record(session=5, seq=3))])
        set_to("on", standbys="")
        assert wait_until(
            lambda: ledger.safety() == "once written to the server's disk (no replica)"
        )
        assert ledger.commit([arrival(make_record(session=5, seq=3))]).inserted == 1
        assert ledger.count() == 3


@pytest.mark.needs("openssl")
def test_encryption_is_verified_and_never_given_up_without_a_word(server, tmp_path):
    """It connects by the right authority only, and never to a server without TLS."""
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other", "another CA")
    pair = authority.signed("localhost", "DNS:localhost,IP:127.0.0.1")
    plain = server.new_database()
    verified = f"{plain}?sslmode=verify-full&sslrootcert={{}}"
    initialised(plain)
    with pytest.raises(UnavailableError, match="does not support SSL"):
        open_ledger(PostgresAddress(verified.format(authority.certificate)))
    server.stop()
    for source, name in ((pair.certificate, "server.crt"), (pair.key, "server.key")):
        target = server.data / name
        target.write_bytes(source.read_bytes())
        os.chown(target, server.data.stat().st_uid, server.data.stat().st_gid)
        target.chmod(0o600)
    server.settings |= {"ssl": "on"}
    server.start()
    with open_ledger(PostgresAddress(verified.format(authority.certificate))) as ledger:
        assert (
            ledger.query("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")[0][0] is True
        )
    with pytest.raises(UnavailableError, match="certificate verify failed"):
        open_ledger(PostgresAddress(verified.format(other.certificate)))
