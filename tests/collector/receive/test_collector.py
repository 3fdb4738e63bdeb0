"""Test the commits, receipts and acknowledgements of a collector, and their order.

The tests also cover what it reports of itself.
"""

import pytest
from click.testing import CliRunner

from edgemeter.agent.base import postgres_session, sqlite_file
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.mqtt_session import SHORT_LIFE_S, TAKEN_OVER
from edgemeter.agent.contract import messages
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.messages import COLLECTOR_STATE_S, CollectorState, Receipt
from edgemeter.agent.ledger.chunks import COLLISION
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector as command
from edgemeter.collector.receive import collector
from edgemeter.collector.receive.collector import FORGET_S
from tests.fixtures.collecting import intake
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


def run(seq=1, **changes):
    return contract_record.encode(make_record(**({"session": 5, "seq": seq} | changes)))


def stored(path):
    with SqliteLedger(path, "read") as ledger:
        return sorted(
            (entry.record.device, entry.record.session, entry.record.seq)
            for entry in ledger.records()
        )


def test_a_receipt_is_sent_after_the_commit_and_the_message_acknowledged_last(path):
    """A crash between two of these steps loses nothing.

    The broker brings the message again, or the device sends it again.
    """
    with intake(path) as bench:
        bench.watch = lambda: len(stored(path))
        bench.bring(run(1), run(2))
        assert bench.events == [("receipts", 2), ("acknowledged", [1, 2])]
        assert bench.receipts == [
            ("edgemeter/v1/lab/pi-1/receipt", Receipt(session=5, held=((1, 2),)))
        ]


def test_a_record_is_the_same_by_device_session_and_seq_and_by_nothing_less(path):
    """Each of the four messages is another record.

    Brought again, all are receipted again and none is stored twice.
    """
    keys = [("pi-1", 5, 1), ("pi-1", 5, 2), ("pi-1", 6, 1), ("pi-2", 5, 1)]
    payloads = [
        (f"edgemeter/v1/lab/{device}/result", run(device=device, session=session, seq=seq))
        for device, session, seq in keys
    ]
    with intake(path) as bench:
        for topic, payload in payloads * 2:
            bench.bring(payload, topic=topic)
        counts = bench.collector.counts
        assert (counts.inserted, counts.duplicates, counts.quarantined) == (4, 4, 0)
        assert bench.receipts[:4] == bench.receipts[4:]
    assert stored(path) == sorted(keys)


def test_a_receipt_names_what_is_held_and_not_the_gaps(path):
    """One receipt covers a session's batches and single records of one group.

    The gap stays missing until its record comes.
    """
    with intake(path) as bench:
        bench.bring(messages.join_records([run(1), run(2), run(4)]), run(7), run(1, session=6))
        ranges = {receipt.session: receipt.held for _, receipt in bench.receipts}
        assert ranges == {5: ((1, 2), (4, 4), (7, 7)), 6: ((1, 1),)}
        with SqliteLedger(path, "read") as ledger:
            assert ledger.ranges("pi-1", 5) == [(1, 2), (4, 4), (7, 7)]
            assert {session.session: session.missing for session in ledger.sessions()} == {
                5: 3,
                6: 0,
            }
        bench.bring(run(3))
        with SqliteLedger(path, "read") as ledger:
            assert ledger.ranges("pi-1", 5) == [(1, 4), (7, 7)]


def test_what_cannot_be_taken_is_quarantined_and_stops_nothing(path):
    """Garbage, another's topic and a repeated number are quarantined with the reason.

    They are acknowledged, and not receipted.
    """
    good, same = run(1), run(1)
    with intake(path) as bench:
        bench.bring(b"\xff" * 100, good, same, good, run(9, device="pi-2"))
        counts = bench.collector.counts
        assert (
            counts.inserted,
            counts.duplicates,
            counts.collisions,
            counts.rejections.total(),
        ) == (1, 1, 1, 2)
        assert bench.receipts == [
            ("edgemeter/v1/lab/pi-1/receipt", Receipt(session=5, held=((1, 1),)))
        ]
        assert bench.events[-1] == ("acknowledged", [1, 2, 3, 4, 5])
    with SqliteLedger(path, "read") as ledger:
        assert [entry.record for entry in ledger.records(with_samples=True)] == [
            contract_record.decode(good)
        ]
        entries = {entry.payload: entry for entry in ledger.quarantined()}
    assert entries.keys() == {
        b"\xff" * 100,
        same,
        *(payload for payload in entries if b'"pi-2"' in payload),
    }
    assert entries[same].reason == COLLISION
    assert len(entries) == 3


def test_a_record_without_a_time_of_its_own_is_receipted_with_the_time_of_its_first_receipt(path):
    """A device whose clock was never set learns when the record came, also by a later copy."""
    with intake(path) as bench:
        timeless = run(1, clock_synchronised=False, started_at_ns=12)
        bench.bring(timeless, run(2))
        bench.bring(timeless)
        times = {receipt.held: receipt.received_ns for _, receipt in bench.receipts}
        with SqliteLedger(path, "read") as ledger:
            (first_ns,) = {entry.received_ns for entry in ledger.records() if entry.record.seq == 1}
        assert times == {((1, 1),): first_ns, ((2, 2),): None}


def test_nothing_is_receipted_while_it_cannot_be_committed(path, monkeypatch, caplog):
    """The collector is unwell until the group is committed, and then all is receipted, once.

    The failure is reported once, as the commit has to be retried.
    """
    monkeypatch.setattr(collector, "RETRY_S", 0.0)
    commit, troubles = SqliteLedger.commit, []

    def full_at_first(ledger, *arguments):
        if len(troubles) < 3:
            troubles.append(bench.collector.unwell())
            raise TransientError("the disk is full")
        return commit(ledger, *arguments)

    monkeypatch.setattr(SqliteLedger, "commit", full_at_first)
    with intake(path) as bench:
        bench.watch = lambda: len(stored(path))
        bench.bring(run(1))
        assert troubles == [None, "the disk is full", "the disk is full"]
        assert bench.events == [("receipts", 1), ("acknowledged", [1])]
        assert bench.collector.unwell() is None
    assert caplog.text.count("cannot commit") == 1


def test_a_collector_is_unwell_while_nothing_ends_and_is_restarted_in_the_end(path):
    """The collector's clock decides, and a pass without work counts as well.

    Whoever is not connected receives nothing.
    """
    assert min(sqlite_file.BUSY_TIMEOUT_S, postgres_session.DEADLINE_S) > collector.UNWELL_S
    with intake(path) as bench:
        for at_s, is_well, is_stalled in (
            (collector.UNWELL_S, True, False),
            (collector.UNWELL_S + 1, False, False),
            (collector.STALLED_S, False, False),
            (collector.STALLED_S + 1, False, True),
        ):
            bench.now_s = at_s
            assert (bench.collector.unwell() is None, bench.collector.is_stalled()) == (
                is_well,
                is_stalled,
            )
        bench.bring()
        assert bench.collector.unwell() is None
        bench.is_up = False
        assert "no connection" in bench.collector.unwell()


def test_who_may_not_subscribe_is_unwell_and_who_may_not_publish_its_state_is_not(path, caplog):
    """The broker's refusal is named once, until the connection is gone."""
    with intake(path) as bench:
        for refusals, is_well in (
            ([None, "Not authorized"], True),
            ([f"subscription {topic}: Not authorized" for topic in bench.topics[:2]], False),
        ):
            for refusal in refusals:
                bench.collector.answered(refusal)
            assert (bench.collector.unwell() is None) == is_well
        assert bench.topics[0] in bench.collector.unwell()
        assert [entry.levelname for entry in caplog.records] == ["ERROR"]
        bench.collector.disconnected("gone")
        assert bench.collector.unwell() is None


def test_a_fight_for_one_name_at_the_broker_is_named(path, caplog):
    """Two collectors with copies of one ledger have the same name at the broker.

    The broker says so, or the connection ends early again and again.
    """
    with intake(path) as bench:
        bench.collector.disconnected(TAKEN_OVER)
        assert [entry.levelname for entry in caplog.records] == ["ERROR"]
        lines = []
        for lasts_s in (1, 1, SHORT_LIFE_S, 1, 1, 1, 1):
            caplog.clear()
            bench.collector.connected()
            bench.now_s += lasts_s
            for _ in range(2):
                # The second is a try to come back that the broker refuses.
                bench.collector.disconnected("cut")
            lines += caplog.messages
        assert ["copy of this ledger" in line for line in lines] == [False] * 6 + [True]


def test_its_state_is_retained_at_the_broker_and_flooders_are_named_once(path, monkeypatch):
    """The state is published at every connection, as the Will may have been published.

    It is repeated every half minute then, and when the collector goes.
    """
    monkeypatch.setattr(collector, "USELESS_AT_ONCE", 1.0)

    def online(*flooding, lasting="retained"):
        return CollectorState(state="online", flooding=flooding), lasting

    with intake(path) as bench:
        for at_s, is_new, sent in (
            (0, False, [online()]),
            (1, False, []),
            (2, True, [online()]),
            (COLLECTOR_STATE_S + 1, False, []),
            (COLLECTOR_STATE_S + 2, False, [(CollectorState(state="offline"), "retained")]),
        ):
            bench.now_s = at_s
            (bench.collector.connected if is_new else bench.collector.report)()
            assert [state[1:] for state in bench.states] == sent
            bench.states.clear()
        bench.bring(*[b"garbage"] * 3)
        for sent in ([online("pi-1", lasting="passing")], []):
            bench.collector.report()
            assert [state[1:] for state in bench.states] == sent
            bench.states.clear()
    assert bench.states == [(bench.profile.will.topic, CollectorState(state="offline"), "retained")]
    assert (
        bench.profile.will.topic
        == f"edgemeter/collector/{bench.profile.client_id.removeprefix('collector-')}/state"
    )
    assert messages.decode_collector_state(bench.profile.will.payload).state == "offline"


def test_a_board_that_sends_its_whole_window_again_does_not_flood(path):
    """A thousand messages at once are no flood, five times as many are."""
    with intake(path) as bench:
        for count, flooding in ((1000, []), (4000, [("pi-1",)])):
            bench.bring(*[b"garbage"] * count)
            bench.states.clear()
            bench.collector.report()
            assert [state.flooding for _, state, _ in bench.states] == flooding


def test_messages_of_a_device_that_sends_too_much_are_acknowledged_and_counted(path, monkeypatch):
    """The device sends them again, as they have no receipt; other devices' are taken."""
    monkeypatch.setattr("edgemeter.collector.receive.inbox.MOST_RESULTS", 2)
    with intake(path) as bench:
        bench.bring(run(1), run(2), run(3), run(4))
        assert bench.collector.counts.shed == 2
        assert bench.events == [
            ("acknowledged", [3, 4]),
            ("receipts", None),
            ("acknowledged", [1, 2]),
        ]
        assert bench.receipts[0][1].held == ((1, 2),)


def test_old_records_are_removed_as_often_as_is_due(path):
    """Records are removed at once, and every minute then.

    A number that is known to have been here is receipted and not stored again.
    """
    with intake(path, retention=Retention(records_days=1e-9)) as bench:
        bench.bring(run(1))
        assert stored(path) == []
        bench.bring(run(2))
        assert [seq for _, _, seq in stored(path)] == [2]
        bench.now_s = FORGET_S
        bench.bring(run(1))
        assert (bench.collector.counts.duplicates, stored(path)) == (1, [])
        assert bench.receipts[-1][1].held == ((1, 1),)


def test_a_ledger_has_one_collector_and_a_group_a_name(path):
    """A second collector started by mistake ends with a remedy.

    The first goes on, and after it the ledger is free.
    """
    with intake(path) as bench:
        assert (bench.profile.lasting, bench.topics[0]) == (
            "persistent",
            messages.topics_of("result"),
        )
        with pytest.raises(UnavailableError, match="--ledger"):
            collector.Collector(bench.collector.address, path).open()
        assert bench.collector.unwell() is None
    with intake(path, group="g") as bench:
        assert (bench.profile.lasting, bench.topics[0]) == (
            "clean",
            f"$share/g/{messages.topics_of('result')}",
        )
    for name in ("", "a/b", "a b"):
        with pytest.raises(ConfigError, match="group name"):
            collector.Collector(bench.collector.address, path, group=name)


def test_wrong_options_are_refused_before_anything_is_touched(path):
    """The error names the value, and a group needs a broker that can share."""
    for options, named in (
        (("--broker", "http://x"), "http://x"),
        (("--metrics", "x"), "'x'"),
        (("--influx", "http://influx.example", "--influx-token-file", "/absent"), "/absent"),
        (("--group", "g"), "--broker"),
    ):
        with table_row(*options):
            result = CliRunner().invoke(command, ["up", "--ledger", str(path), *options])
            assert named in (
                str(result.exception)
                if isinstance(result.exception, ConfigError)
                else result.stderr
            )
    assert not path.exists()
