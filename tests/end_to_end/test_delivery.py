import json
import re
import signal
import subprocess
import time

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.cli.main import cli
from edgemeter.agent.contract import messages, record
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.ledger.chunks import COLLISION
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.influx.influx_config import InfluxConfig
from tests.fixtures.collecting import EDGEMETER, TUNED, CollectorProcess, at_end, broker_of, collecting, embedded_broker, publishing
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.publishing import started
from tests.fixtures.record_factory import make_record
from tests.fixtures.servers import Influx, mosquitto

__all__ = ["at_end"]


@pytest.fixture(
    params=[pytest.param("tuned", marks=pytest.mark.mosquitto), pytest.param("defaults", marks=pytest.mark.mosquitto), "embedded"]
)
def broker(request, tmp_path):
    """Return the address of a running broker of each kind."""
    with broker_of(request.param, tmp_path) as address:
        yield address


def seqs_in(ledger, session, device="pi-1"):
    """Return the ranges that the ledger holds of one session."""
    with SqliteLedger(ledger, "read") as opened:
        return opened.ranges(device, session)


def count_of(ledger, session):
    """Return how many records the ledger holds of one session."""
    return sum(last - first + 1 for first, last in seqs_in(ledger, session))


def test_every_record_arrives_once_whole_and_the_outbox_is_empty(broker, tmp_path):
    """The whole way in one process, over each kind of broker."""
    with (
        Outbox(tmp_path / "outbox") as outbox,
        collecting(broker, tmp_path / "ledger") as collector,
        publishing(broker, outbox) as publisher,
    ):
        sent = [outbox.put(make_record(repeat=number)) for number in range(200)]
        publisher.wake()
        assert publisher.drain(120) == 0
        assert collector.settled(30)
        with SqliteLedger(tmp_path / "ledger", "read") as ledger:
            assert (
                sorted((stored.record for stored in ledger.records(with_samples=True)), key=lambda stored_record: stored_record.seq) == sent
            )
            (device,) = ledger.devices()
            assert (device.state, device.session, device.birth.arch) == ("online", outbox.session, "aarch64")
        assert collector.counts.inserted == 200
    with SqliteLedger(tmp_path / "ledger", "read") as ledger:
        assert ledger.count() == 200


def test_what_cannot_be_taken_is_quarantined_and_stops_nothing(broker, tmp_path):
    """Garbage, a foreign name and a second record of one number, between good records."""
    with collecting(broker, tmp_path / "ledger") as collector:
        rogue = Peer(broker, "edgemeter/v1/+/+/receipt")
        good, same = make_record(session=5, seq=1), make_record(session=5, seq=1)
        for topic, payload in (
            ("edgemeter/v1/lab/pi-1/result", b"\xff" * 100),
            ("edgemeter/v1/lab/pi-2/result", record.encode(good)),
            ("edgemeter/v1/lab/pi-1/state", b"{}"),
            ("edgemeter/v1/lab/pi-1/result", record.encode(good)),
            ("edgemeter/v1/lab/pi-1/result", record.encode(same)),
            ("edgemeter/v1/lab/pi-1/result", record.encode(good)),
        ):
            rogue.session.publish(topic, payload)
        assert wait_until(lambda: rogue.messages and collector.counts.messages >= 6)
        rogue.close()
        counts = collector.counts
        assert (counts.inserted, counts.duplicates, counts.collisions, counts.rejections.total()) == (1, 1, 1, 3)
    assert {messages.decode_receipt(message.payload) for message in rogue.messages} == {messages.Receipt(session=5, held=((1, 1),))}
    assert {message.topic for message in rogue.messages} == {"edgemeter/v1/lab/pi-1/receipt"}
    with SqliteLedger(tmp_path / "ledger", "read") as ledger:
        reasons = [entry.reason for entry in ledger.quarantined()]
    assert sum(reason == COLLISION for reason in reasons) == 1
    assert sum("but arrived on the topic of device 'pi-2'" in reason for reason in reasons) == 1
    assert len(reasons) == 4


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_collector_process_killed_again_and_again_loses_and_doubles_nothing(tmp_path, at_end):
    """SIGKILL in the middle of the stream: every record is in the ledger exactly once."""
    server = mosquitto(tmp_path, *TUNED)
    address = at_end.enter_context(started(server))
    ledger = tmp_path / "ledger"
    collector = at_end.enter_context(CollectorProcess(ledger, "--broker", str(address)))
    cut_short = 0
    with Outbox(tmp_path / "outbox") as outbox, publishing(address, outbox) as publisher:
        for round_number in range(1, 4):
            before = count_of(ledger, outbox.session)
            for _ in range(400):
                outbox.put(make_record())
            publisher.wake()
            assert wait_until(lambda least=before: count_of(ledger, outbox.session) > least)
            collector.end(signal.SIGKILL)
            cut_short += count_of(ledger, outbox.session) < 400 * round_number
            at_end.enter_context(collector)
        assert publisher.drain(180) == 0
        assert seqs_in(ledger, outbox.session) == [(1, 1200)]
    assert cut_short > 0
    with SqliteLedger(ledger, "read") as opened:
        assert opened.count() == 1200
        assert opened.quarantined() == []
    status, message = collector.end(signal.SIGTERM)
    assert status == 0
    assert re.search(r"stored \d+ new records, dropped \d+ duplicates, quarantined 0", message)


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_broker_killed_again_and_again_loses_and_doubles_nothing(tmp_path, at_end):
    """SIGKILL takes the broker's queue and sessions with it; outbox and receipts do not care."""
    server = mosquitto(tmp_path, *TUNED)
    address = at_end.enter_context(started(server))
    ledger = tmp_path / "ledger"
    with Outbox(tmp_path / "outbox") as outbox, collecting(address, ledger) as collector, publishing(address, outbox) as publisher:
        for round_number in range(1, 4):
            for _ in range(400):
                outbox.put(make_record())
            publisher.wake()
            assert wait_until(lambda least=400 * round_number - 399: collector.counts.inserted >= least, 20)
            server.kill()
            time.sleep(0.2)
            server.start()
        assert publisher.drain(180) == 0
        assert seqs_in(ledger, outbox.session) == [(1, 1200)]
        assert collector.counts.inserted == 1200


@pytest.mark.mosquitto
def test_a_device_that_measured_while_nobody_was_there_delivers_later(tmp_path, at_end):
    """Records of two earlier sessions, one of them killed, go out with the third."""
    path, ledger = tmp_path / "outbox", tmp_path / "ledger"
    sessions = []
    for _ in range(2):
        with Outbox(path) as outbox:
            sessions.append(outbox.session)
            for _ in range(5):
                outbox.put(make_record())
    server = mosquitto(tmp_path, *TUNED)
    address = at_end.enter_context(started(server))
    with Outbox(path) as outbox, collecting(address, ledger), publishing(address, outbox) as publisher:
        outbox.put(make_record())
        assert publisher.drain(60) == 0
        assert [seqs_in(ledger, session) for session in [*sessions, outbox.session]] == [[(1, 5)], [(1, 5)], [(1, 1)]]


def test_a_full_disk_at_the_collector_confirms_nothing_until_there_is_room(tmp_path, caplog, at_end, monkeypatch):
    """No receipt for what is not kept; the records wait on the device and arrive when there is room. Reported once: logs take room."""
    monkeypatch.setattr("edgemeter.collector.receive.receiver.RETRY_S", 0.02)
    address = at_end.enter_context(embedded_broker())
    with (
        Outbox(tmp_path / "outbox") as outbox,
        collecting(address, tmp_path / "ledger") as collector,
        publishing(address, outbox) as publisher,
    ):
        connection = collector._receiver._ledger.connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        for _ in range(100):
            outbox.put(make_record())
        assert wait_until(lambda: "cannot commit, so no receipt is sent" in caplog.text)
        waiting = publisher.drain(0.5)
        with SqliteLedger(tmp_path / "ledger", "read") as ledger:
            assert waiting > 50
            assert waiting + ledger.count() == 100
        connection.execute("PRAGMA max_page_count = 1000000")
        assert publisher.drain(120) == 0
        assert seqs_in(tmp_path / "ledger", outbox.session) == [(1, 100)]
        assert caplog.text.count("cannot commit") == caplog.text.count("results are being committed again") == 1


def test_publish_names_whose_records_it_did_not_send(tmp_path, at_end, monkeypatch):
    """An outbox may hold another device's: it is not empty then, and who named no device has not sent what he meant to."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    address = str(at_end.enter_context(embedded_broker()))
    with Outbox(tmp_path / "outbox.sqlite") as outbox:
        outbox.put(make_record(device="pi-1"))
    options = ["agent", "publish", "--broker", address, "--delivery-timeout", "1"]
    result = CliRunner(env={"EDGEMETER_DEVICE": ""}).invoke(cli, options)
    assert isinstance(result.exception, TransientError)
    assert str(result.exception).endswith("the outbox still holds 1 of device 'pi-1': send them with --device")
    result = CliRunner().invoke(cli, [*options, "--device", "pi-2"])
    assert result.exit_code == 0, result.exception
    assert result.stderr.startswith("delivered 0 records of device 'pi-2'; the outbox still holds 1 of device 'pi-1'")


def test_an_influxdb_that_is_away_is_reported_at_the_start(tmp_path, at_end, caplog):
    """With an empty ledger nothing would be tried, and a wrong port be noticed when results are missed."""
    with collecting(at_end.enter_context(embedded_broker()), tmp_path / "ledger", InfluxConfig("http://127.0.0.1:1", "t", "o")):
        assert "not drained yet: no InfluxDB responds at http://127.0.0.1:1" in caplog.text


@pytest.mark.influx
def test_every_run_is_in_influxdb_with_the_numbers_of_the_ledger(influxd, tmp_path, at_end):
    """Device, broker, ledger, InfluxDB: the last of them says what the first measured."""
    server = Influx(influxd, tmp_path)
    at_end.enter_context(started(server))
    server.set_up()
    address = at_end.enter_context(embedded_broker())
    config = InfluxConfig(server.url, server.token)
    with (
        Outbox(tmp_path / "outbox") as outbox,
        publishing(address, outbox) as publisher,
        collecting(address, tmp_path / "ledger", config) as collector,
    ):
        sent = [outbox.put(make_record(repeat=number, throughput_per_s=80.5 + number)) for number in range(30)]
        publisher.wake()
        assert publisher.drain(60) == 0
        assert collector.settled(120), collector.trouble()
    rows = server.query("SELECT id, throughput_per_s, latency_p50_ms, accuracy_value FROM run", "edgemeter")
    expected = {(record.id, record.throughput_per_s, record.latency.p50_ms, record.accuracy.value) for record in sent}
    assert {(row["id"], row["throughput_per_s"], row["latency_p50_ms"], row["accuracy_value"]) for row in rows} == expected
    assert server.query('SELECT lag_rows FROM "collector"', "edgemeter"), "the collector reports how far its drain is"


def test_the_command_brings_its_own_broker_and_ends_cleanly_on_ctrl_c(tmp_path, at_end):
    """`edgemeter collector up` on a desk: it says where it listens, and what it kept."""
    collector = at_end.enter_context(CollectorProcess(tmp_path / "ledger", "--port", "0"))
    with Outbox(tmp_path / "outbox") as outbox, publishing(collector.address, outbox) as publisher:
        outbox.put(make_record())
        assert publisher.drain(60) == 0
    assert collector.end(signal.SIGINT) == (0, "stored 1 new records, dropped 0 duplicates, quarantined 0\n")
    assert seqs_in(tmp_path / "ledger", outbox.session) == [(1, 1)]


@pytest.mark.services
def test_the_status_lists_what_was_rejected_for_people_and_for_machines(tmp_path, at_end):
    """Nothing from outside reaches the terminal as it is."""
    collector = at_end.enter_context(CollectorProcess(tmp_path / "ledger", "--port", "0"))
    peer = Peer(collector.address)
    peer.session.publish("edgemeter/v1/lab/pi-\x1b[31m/result", b"\x1b[2J")
    command = [*EDGEMETER, "collector", "status", "--ledger", str(tmp_path / "ledger")]

    def listed():
        return json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True, text=True).stdout)["rejected"]

    assert wait_until(listed)
    (entry,) = listed()
    assert (entry["topic"], entry["payload"], entry["times"]) == ("edgemeter/v1/lab/pi-\x1b[31m/result", "\x1b[2J", 1)
    assert "JSON is malformed" in entry["reason"]
    completed = subprocess.run(command, capture_output=True, check=True, text=True)
    assert "not a run record" in completed.stdout
    assert "\x1b" not in completed.stdout
    assert "1 rejected message" in completed.stdout
    peer.close()
    collector.end(signal.SIGTERM)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--broker", "127.0.0.1:1"], 1, "no MQTT broker answers at 127.0.0.1:1"),
        (["--broker", "http://x"], 2, "is not a broker address"),
        (["--port", "0", "--influx", "http://127.0.0.1:1", "--influx-token-file", "/absent"], 2, "cannot read the InfluxDB token"),
    ],
)
def test_a_command_that_cannot_work_ends_in_one_line(tmp_path, options, status, message):
    """Exit status and remedy; no traceback."""
    command = [*CollectorProcess(tmp_path / "ledger").command, *options]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert completed.returncode == status
    assert message in completed.stderr
    assert completed.stderr.count("\n") == 1


def test_a_ledger_that_is_not_one_ends_the_command_with_a_usage_error(tmp_path):
    """Somebody's text file is not overwritten."""
    (tmp_path / "ledger").write_text("notes\n")
    completed = subprocess.run(
        [*CollectorProcess(tmp_path / "ledger").command, "--port", "0"], capture_output=True, text=True, check=False, timeout=150
    )
    assert completed.returncode == 2
    assert "is not an edgemeter ledger" in completed.stderr
    assert (tmp_path / "ledger").read_text() == "notes\n"


def test_the_topics_of_several_fleets_reach_one_collector(tmp_path, at_end):
    """Each receipt goes back to the device that it is for."""
    address = at_end.enter_context(embedded_broker())
    with collecting(address, tmp_path / "ledger") as collector:
        peer = Peer(address, f"{messages.TOPIC_ROOT}/+/+/receipt")
        for fleet, device, session in (("lab", "a", 7), ("field", "a", 8), ("field", "b", 9)):
            payload = messages.join_records(
                [record.encode(make_record(fleet=fleet, device=device, session=session, seq=seq)) for seq in (1, 2, 4)]
            )
            peer.session.publish(f"{messages.TOPIC_ROOT}/{fleet}/{device}/result", payload)
        assert wait_until(lambda: len(peer.messages) >= 3)
        peer.close()
        assert collector.counts.inserted == 9
    receipts = {message.topic: messages.decode_receipt(message.payload) for message in peer.messages}
    assert receipts["edgemeter/v1/field/b/receipt"] == messages.Receipt(session=9, held=((1, 2), (4, 4)))
    assert {receipt.session for receipt in receipts.values()} == {7, 8, 9}
