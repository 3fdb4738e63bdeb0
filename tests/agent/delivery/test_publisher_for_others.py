"""Facts about a publisher that other parts of the agent use: their messages go out and come in, and never hold up a result."""

import pytest

from edgemeter.agent.contract import messages
from edgemeter.agent.delivery.publisher import WAITING_MESSAGES, Publisher
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import TUNED, Listener, always, make_birth, peer, put, started
from tests.fixtures.servers import mosquitto

COMMAND, JOB, WANT = (f"{messages.TOPIC_ROOT}/lab/pi-1/{kind}" for kind in ("command", "job", "want"))


@pytest.fixture
def listener():
    """Return a listener."""
    return Listener()


def test_messages_of_others_go_out_and_those_for_them_come_in(address, outbox, listener):
    """In order, at QoS 0 and 1, retained where they ask for it; before there is a connection nothing is taken."""
    publisher = Publisher(address, outbox, make_birth(outbox), listener=listener)
    assert not publisher.publish(JOB, b"too early")
    with peer(address, JOB) as server:
        publisher.connect()
        assert listener.is_connected.wait(150)
        assert wait_until(lambda: listener.heard or not server.session.publish(COMMAND, b"order"))
        server.session.publish(f"{messages.TOPIC_ROOT}/lab/pi-1/content", b"not asked for")
        assert publisher.publish(JOB, b"1")
        assert publisher.publish(JOB, b"2", lasting="retained")
        assert publisher.publish(JOB, b"3", qos=0)
        assert wait_until(lambda: len(server.messages) == 3)
        assert {message.payload for message in server.messages} == {b"1", b"2", b"3"}
        assert set(listener.heard) == {b"order"}
        publisher.close()
        assert not publisher.publish(JOB, b"too late")
    with peer(address, JOB) as late:
        assert wait_until(lambda: [message.payload for message in late.messages] == [b"2"])


def test_a_flood_of_others_is_refused_and_the_broker_is_not_overrun(address, outbox, listener):
    """Never more at once than the broker takes: none of it is lost."""
    publisher = Publisher(address, outbox, make_birth(outbox), listener=listener)
    with peer(address, WANT) as server:
        publisher.connect()
        assert listener.is_connected.wait(150)
        accepted = sum(publisher.publish(WANT, b"%d" % number) for number in range(5 * WAITING_MESSAGES))
        assert accepted >= WAITING_MESSAGES
        assert wait_until(lambda: len(server.messages) == accepted, 30), (len(server.messages), accepted)
        assert server.reasons == []
        publisher.close()


@pytest.mark.mosquitto
def test_a_broker_that_allows_no_jobs_still_takes_results(tmp_path, outbox, listener, caplog):
    """Rules without the topics of jobs: reported in one line, and the records go out and are confirmed."""
    acl = tmp_path / "acl"
    device = f"{messages.TOPIC_ROOT}/lab/pi-1"
    acl.write_text("".join(f"topic readwrite {device}/{kind}\n" for kind in ("result", "receipt", "birth", "state")))
    with started(mosquitto(tmp_path, f"acl_file {acl}", *TUNED)) as where, peer(where, f"{device}/result", confirm=always):
        publisher = Publisher(where, outbox, make_birth(outbox), listener=listener)
        publisher.connect()
        assert listener.is_connected.wait(150)
        assert publisher.publish(JOB, b"report")
        assert wait_until(lambda: "update its ACL" in caplog.text)
        put(outbox, 3)
        publisher.wake()
        assert publisher.drain(120) == 0
        publisher.close()
