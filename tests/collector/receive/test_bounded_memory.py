"""Bombs of every shape, each in a process of its own: what a message may cost in memory, by the kernel's count."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.bombs import BOMBS, MESSAGE_BYTES, keyed

ROOT = Path(__file__).resolve().parents[3]
# Text of 24 MiB, once, and what is built of it.
GROWTH_LIMIT_MB = 60

# Admits and commits the message in a file as the collector does, and prints by how much that raised the peak, in MB.
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
        admitted = Admitted()
        admitted.add(Message(topic, payload), 7)
        ledger.commit(admitted.arrivals, admitted.rejections, admitted.changes, admitted.batches)
        del admitted
        while ledger.check(8) is not None:
            pass
    receive(numbered(1), "edgemeter/v1/lab/pi-1/result")
    before_mb = peak_mb()
    receive(payload, topic)
    print(peak_mb() - before_mb, ledger.count())
"""


def cost(folder, payload, topic="edgemeter/v1/lab/pi-1/result"):
    """Return by how many MB a message raised the peak of a process that took it, and how many records the ledger has then."""
    (folder / "payload").write_bytes(payload)
    completed = subprocess.run([sys.executable, "-c", CHILD, str(folder), topic], cwd=ROOT, capture_output=True, text=True, check=True)
    growth_mb, count = completed.stdout.split()
    return float(growth_mb), int(count)


@pytest.mark.nightly
@pytest.mark.parametrize("name", BOMBS)
def test_no_message_raises_the_collector_by_more_than_the_limit(tmp_path, name):
    """What it is allowed to be large in is bytes: of text, not of objects built from it."""
    growth_mb, _ = cost(tmp_path, BOMBS[name]())
    assert growth_mb < GROWTH_LIMIT_MB


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["birth", "state", "health"])
def test_a_report_of_a_device_is_bounded_too(tmp_path, kind):
    """16 MB of runtimes are no birth."""
    document = {"device": "pi-1", "fleet": "lab", "session": 1, "agent": "0", "board": None, "os": None, "arch": "x", "state": "online"}
    text = json.dumps(document)[:-1].encode() + b',"told_ns":1,"runtimes":' + keyed(MESSAGE_BYTES).replace(b":0", b':""') + b"}"
    growth_mb, _ = cost(tmp_path, text, f"edgemeter/v1/lab/pi-1/{kind}")
    assert growth_mb < GROWTH_LIMIT_MB / 2
