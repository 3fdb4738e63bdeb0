"""Tests of messages that no agent sends, through a real broker to a real collector process.

They are refused at a bounded price, and nothing else suffers.
"""

import re
import signal
import subprocess
import zlib
from pathlib import Path

import pytest

from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.collecting import EDGEMETER, RESULTS, TUNED
from tests.fixtures.hostile import HOSTILE, bomb, numbered
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.publishing import started
from tests.fixtures.servers import mosquitto

pytestmark = pytest.mark.mosquitto
# The inbox holds 24 MiB, what is read from the broker 16 MiB, and one payload opens to 24 MiB.
PEAK_LIMIT_MB = 125


@pytest.fixture
def broker(tmp_path):
    """Return the address of a mosquitto that lets everything through."""
    with started(mosquitto(tmp_path, *TUNED)) as address:
        yield address


@pytest.fixture
def collector(broker, tmp_path):
    """Return the process of a collector that receives."""
    command = [
        *EDGEMETER,
        "collector",
        "up",
        "--ledger",
        str(tmp_path / "ledger"),
        "--broker",
        str(broker),
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    assert wait_until(lambda: b"receiving from" in (tmp_path / "log").read_bytes())
    yield process
    process.kill()
    process.wait()


def peak_mb(process):
    """Return the most memory that a process ever had, by the kernel."""
    return (
        int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())[1])
        / 1024
    )


def test_every_hostile_payload_is_quarantined_and_good_records_go_on(broker, collector, tmp_path):
    """Every hostile payload is quarantined, and the good record after it gets its receipt.

    The receipt comes at once, or when the record comes again.
    """
    sender = Peer(broker, "edgemeter/v1/lab/pi-1/receipt")
    for seq, (name, make) in enumerate(HOSTILE.items(), start=1):
        receipt = b'{"session":77,"held":[[%d,%d]]}' % (seq, seq)
        for _ in range(20):
            sender.session.publish(RESULTS, make())
            sender.session.publish(RESULTS, numbered(seq))
            if wait_until(
                lambda last=receipt: sender.messages and sender.messages[-1].payload == last,
                10,
                patience=1.0,
            ):
                break
        assert receipt in [message.payload for message in sender.messages[-1:]], name
        assert collector.poll() is None, name
    assert peak_mb(collector) < PEAK_LIMIT_MB
    sender.close()
    collector.send_signal(signal.SIGTERM)
    assert collector.wait(150) == 0
    assert b"Traceback" not in (tmp_path / "log").read_bytes()
    with SqliteLedger(tmp_path / "ledger", "read") as ledger:
        assert ledger.ranges("pi-1", 77) == [(1, len(HOSTILE))]
        assert {record.record.session for record in ledger.records()} == {77}
        quarantined = ledger.quarantined()
    assert {entry.topic for entry in quarantined} == {RESULTS}
    assert sum(entry.times for entry in quarantined) >= len(HOSTILE)


@pytest.mark.nightly
def test_a_flood_of_bombs_costs_no_more_memory_than_one(broker, collector, tmp_path):
    """Hundreds of bombs of several kinds cost no more memory than one.

    The peak is bounded, and the good record behind them arrives.
    """
    bombs = [bomb(b" ", 1024), bomb(b"[", 1024), zlib.compress(b"[" + b"{}," * (20 << 20) + b"{}]")]
    sender = Peer(broker, "edgemeter/v1/lab/pi-2/receipt")
    for number in range(60):
        sender.session.publish(RESULTS, bombs[number % len(bombs)])
    # A device that floods might have to send this again, as a real one does.
    sender.session.publish("edgemeter/v1/lab/pi-2/result", numbered(1, device="pi-2"))
    assert wait_until(lambda: bool(sender.messages), 120)
    sender.close()
    assert peak_mb(collector) < PEAK_LIMIT_MB
    assert collector.poll() is None
    assert b"Traceback" not in (tmp_path / "log").read_bytes()
