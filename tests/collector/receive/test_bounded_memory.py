"""Test the memory that any message and a fleet of 10,000 boards cost a collector.

The kernel counts it for a process of the test's own.
"""

import base64
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from edgemeter.agent.contract import messages, record
from edgemeter.agent.contract.messages import Topic
from edgemeter.collector.receive import admission as wire
from tests.fixtures.collecting import TUNED, CollectorProcess
from tests.fixtures.health_factory import make_health
from tests.fixtures.hostile import MEGABYTE, bomb, numbered, with_text
from tests.fixtures.mqtt_peer import Peer
from tests.fixtures.publishing import started
from tests.fixtures.servers import mosquitto
from tools.benchmarks.flood import Settings, send

ROOT = Path(__file__).resolve().parents[3]
# Text of 24 MiB, once, and what is built of it.
GROWTH_LIMIT_MB = 60
MESSAGE_BYTES = 16 * MEGABYTE
TEXT_BYTES = wire.LONGEST_TEXT_BYTES - 4096
# Just small enough to be decoded whole.
ALLOWED_BYTES = wire.LARGEST_HEAD_BYTES - 64_000
BATCH_BYTES = wire.LONGEST_BATCH_BYTES - 64_000


def filled(unit, size_bytes):
    """Return a JSON list of `unit` again and again, about that long."""
    return b"[" + b",".join([unit] * (size_bytes // (len(unit) + 1))) + b"]"


def keyed(size_bytes, value=b"0"):
    """Return a JSON object with as many keys as fit."""
    return (
        b"{" + b",".join(b'"%x":%s' % (number, value) for number in range(size_bytes // 12)) + b"}"
    )


def good_record(size_bytes):
    """Return a record whose samples are that large."""
    data = base64.b64encode(bytes(size_bytes // 4 * 3 - 8192)).decode()
    return numbered(
        3, samples=(record.Series(name="latency", unit="ns", dtype="<u4", count=0, data=data),)
    )


BOMBS = {
    "a long string": lambda: zlib.compress(with_text("case", b'"' + b"x" * TEXT_BYTES + b'"')),
    "nested lists": lambda: zlib.compress(b"[" * (TEXT_BYTES // 2) + b"]" * (TEXT_BYTES // 2)),
    "objects with an id": lambda: filled(b'{"id":""}', MESSAGE_BYTES - 4096),
    "keys at the top": lambda: zlib.compress(b'{"id":"x",' + keyed(TEXT_BYTES)[1:]),
    "keys of temperatures": lambda: zlib.compress(with_text("temperatures_c", keyed(TEXT_BYTES))),
    "conditions": lambda: zlib.compress(
        with_text("conditions", filled(b'{"when":"before"}', TEXT_BYTES))
    ),
    "series": lambda: with_text(
        "samples",
        filled(b'{"name":"","unit":"","dtype":"<u4","count":0,"data":""}', MESSAGE_BYTES - 4096),
    ),
    "a good record of that size": lambda: zlib.compress(good_record(TEXT_BYTES)),
    "many small records with keys": lambda: zlib.compress(
        filled(with_text("temperatures_c", keyed(20_000)), TEXT_BYTES)
    ),
    "10 GB of spaces": lambda: bomb(b" ", 10_000),
    "a bomb in a bomb": lambda: zlib.compress(bomb(b" ", 1024)),
    "conditions, as many as are allowed": lambda: with_text(
        "conditions", filled(b'{"when":"before"}', ALLOWED_BYTES)
    ),
    "allowed keys again and again": lambda: filled(
        with_text("temperatures_c", keyed(BATCH_BYTES // 4)), BATCH_BYTES
    ),
    "records, as many as are allowed": lambda: zlib.compress(
        filled(numbered(2, samples=()), BATCH_BYTES)
    ),
}

# Admits and commits the message in a file as the collector does, and prints by how much that raised
# the peak, in MB.
CHILD = """
import re, sys
from pathlib import Path
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.receive.admission import Admitted
from tests.fixtures.hostile import numbered

def peak_mb():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

folder, topic = Path(sys.argv[1]), sys.argv[2]
payload = (folder / "payload").read_bytes()
with SqliteLedger(folder / "ledger") as ledger:
    def receive(payload, topic):
        admitted = Admitted(7)
        admitted.add(Message(topic, payload))
        ledger.commit(admitted.arrivals, admitted.rejections, admitted.changes, admitted.batches)
    receive(numbered(1), "edgemeter/v1/lab/pi-1/result")
    before_mb = peak_mb()
    receive(payload, topic)
    print(peak_mb() - before_mb, ledger.count())
"""


def cost(folder, payload, topic="edgemeter/v1/lab/pi-1/result"):
    """Return by how many MB a message raised a process's peak, and the records stored then.

    The process took the message; the records are those in the ledger.
    """
    (folder / "payload").write_bytes(payload)
    completed = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), topic],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    growth_mb, count = completed.stdout.split()
    return float(growth_mb), int(count)


@pytest.mark.nightly
@pytest.mark.parametrize("name", BOMBS)
def test_no_message_raises_the_collector_by_more_than_the_limit(tmp_path, name):
    """The limit is in bytes of text, not of objects built from it."""
    growth_mb, _ = cost(tmp_path, BOMBS[name]())
    assert growth_mb < GROWTH_LIMIT_MB


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["birth", "state", "health"])
def test_a_report_of_a_device_is_bounded_too(tmp_path, kind):
    """A birth message with 16 MB of runtimes is rejected."""
    document = {
        "device": "pi-1",
        "fleet": "lab",
        "session": 1,
        "agent": "0",
        "board": None,
        "os": None,
        "arch": "x",
        "state": "online",
    }
    text = (
        json.dumps(document)[:-1].encode()
        + b',"told_ns":1,"runtimes":'
        + keyed(MESSAGE_BYTES, b'""')
        + b"}"
    )
    growth_mb, _ = cost(tmp_path, text, f"edgemeter/v1/lab/pi-1/{kind}")
    assert growth_mb < GROWTH_LIMIT_MB / 2


BOARDS, FLEET_LIMIT_MB = 10_000, 125


def reports(device):
    """Return what a board reports retained when it starts, by kind."""
    runtimes = {"litert": "2.3.0", "onnx": "1.31.1"}
    board = messages.Birth(
        device=device,
        fleet="lab",
        session=1,
        agent="0.1.0",
        board="Raspberry Pi 5",
        os=None,
        arch="x",
        runtimes=runtimes,
    )
    health = make_health(device=device)
    return {
        "birth": board,
        "state": messages.DeviceState(state="online", session=1),
        "health": health,
    }


@pytest.mark.nightly
@pytest.mark.mosquitto
def test_a_collector_with_ten_thousand_boards_takes_at_most_125_mb(tmp_path):
    """Each board reports itself and its health and sends four records; the peak counts."""
    with (
        started(mosquitto(tmp_path, *TUNED)) as address,
        CollectorProcess(tmp_path / "ledger", "--broker", str(address)) as collector,
    ):
        boards = Peer(address)
        for number in range(BOARDS):
            for kind, message in reports(f"pi-{number}").items():
                boards.session.publish(
                    str(Topic("lab", f"pi-{number}", kind)),
                    messages.encode_message(message),
                    lasting="retained",
                )
            if number % 100 == 0:
                boards.session.flush(60)
        boards.close()
        send(Settings(address.port, count=4 * BOARDS, devices=BOARDS))
        status = Path(f"/proc/{collector.process.pid}/status").read_text()
    peak_mb = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024 / 1e6
    assert peak_mb <= FLEET_LIMIT_MB
