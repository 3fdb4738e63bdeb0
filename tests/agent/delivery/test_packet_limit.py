"""Facts about a broker that announces a larger packet than it accepts, as AWS IoT Core does: what is too large stays, all else arrives."""

import os

import msgspec
import pytest

from edgemeter.agent.delivery import outbox_file
from edgemeter.agent.delivery.publisher import Publisher
from edgemeter.agent.delivery.sender import TOO_LARGE_REASON, packed
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import make_birth, put
from tests.fixtures.record_factory import make_series
from tests.fixtures.strict_broker import strict_broker

ANSWERS = ("0x95", "silence")
LARGE = 6


@pytest.fixture
def pauses(monkeypatch):
    """Return the failures in a row for which each pause between connections was drawn; the pauses are short."""
    failures = []
    monkeypatch.setattr("edgemeter.agent.base.mqtt_session.backoff_s", lambda count: failures.append(count) or 0.02)
    return failures


@pytest.fixture
def outbox(outbox):
    """Return an outbox of eleven records, of which the sixth has 4,500 bytes that nothing compresses."""
    put(outbox, LARGE - 1)
    put(outbox, 1, case=os.urandom(2000).hex(), samples=())
    put(outbox, 5)
    return outbox


def deliver(broker, outbox, timeout_s=60):
    """Return how many records are remaining, and why, after a publisher has delivered what it can."""
    publisher = Publisher(broker.address, outbox, make_birth(outbox))
    publisher.connect()
    try:
        remaining = publisher.drain(timeout_s)
        return remaining, publisher.why_left() if remaining else None
    finally:
        publisher.close()


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.usefixtures("pauses")
def test_a_record_above_the_true_limit_is_sent_a_few_times_and_all_others_arrive(outbox, answer):
    """Those before it and those behind it, in order; it is kept, and is not sent once its size is known to be refused."""
    with strict_broker(answer=answer) as broker:
        remaining, reason = deliver(broker, outbox)
        assert remaining == 1
        arrived = [run.seq for runs in broker.accepted_runs for run in runs]
        assert list(dict.fromkeys(arrived)) == [seq for seq in range(1, 12) if seq != LARGE]
        alone = broker.refused.count([LARGE])
        # A closed connection counts only where the record was alone on the line, and after others have got through.
        assert alone <= 2 if answer == "0x95" else 3 <= alone <= 5
        assert len(broker.refused) <= alone + 3
    assert {"0x95": "0x95 (packet too large)", "silence": "closed the connection 3 times"}[answer] in reason
    assert "raise its packet limit" in reason
    (waiting,) = outbox.pending(10, 10**9)
    assert waiting.seq == LARGE
    assert f"record {LARGE} of session {outbox.session} has {len(packed([waiting.payload]))} bytes" in reason


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.usefixtures("pauses")
def test_it_is_not_sent_by_the_next_process_until_somebody_publishes_it_by_hand(outbox, answer):
    """What was learned lies in the outbox."""
    with strict_broker(answer=answer) as broker:
        deliver(broker, outbox)
        broker.refused.clear()
        put(outbox, 1)
        assert deliver(broker, outbox)[0] == 1
        assert [run.seq for run in broker.accepted_runs[-1]] == [12]
        assert broker.refused == []
        broker.accepted = 6000
        outbox_file.try_again(outbox.path)
        assert deliver(broker, outbox) == (0, None)


@pytest.mark.usefixtures("pauses")
def test_a_record_that_is_too_large_with_its_samples_arrives_without_them(outbox):
    """A limit that was learned is treated as one that was announced."""
    with strict_broker(announced=1 << 20, accepted=6000) as broker:
        (heavy,) = put(outbox, 1, samples=(msgspec.structs.replace(make_series(), data=os.urandom(10_000).hex()),))
        assert deliver(broker, outbox) == (0, None)
    arrived = [run for runs in broker.accepted_runs for run in runs if run.seq == heavy.seq]
    assert [run.samples_reason for run in arrived] == [TOO_LARGE_REASON]


@pytest.mark.usefixtures("pauses")
def test_another_broker_gets_it(outbox):
    """The limit is that broker's alone."""
    with strict_broker() as first, strict_broker(accepted=6000) as second:
        assert deliver(first, outbox)[0] == 1
        assert deliver(second, outbox) == (0, None)


def test_the_pause_grows_while_nothing_gets_through_and_nothing_is_called_too_large(outbox, pauses):
    """A broker that closes the line at every result may have no packet limit but rules: nothing is set aside for that."""
    with strict_broker(accepted=0, answer="silence") as broker:
        publisher = Publisher(broker.address, outbox, make_birth(outbox))
        publisher.connect()
        assert wait_until(lambda: len(broker.refused) >= 12)
        reason = publisher.why_left()
        publisher.close()
    assert pauses[:10] == list(range(10))
    assert "right after a message of" in reason
    assert outbox.count() == 11
    with outbox.mapped() as connection:
        assert outbox_file.too_large(connection, None) == []
