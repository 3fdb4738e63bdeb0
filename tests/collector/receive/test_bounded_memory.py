"""Bombs of every shape, each in a process of its own: what a message may cost in memory, by the kernel's count."""

import base64
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from edgemeter.agent.contract import record
from edgemeter.collector.receive import envelope
from tests.fixtures.hostile import MEGABYTE, bomb, numbered, with_text

ROOT = Path(__file__).resolve().parents[3]
MESSAGE_BYTES = 16 * MEGABYTE
TEXT_BYTES = envelope.LONGEST_TEXT_BYTES
# Text of 32 MiB, once, and what is built of it.
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
        while ledger.check(8) is not None:
            pass
    receive(numbered(1), "edgemeter/v1/lab/pi-1/result")
    before_mb = peak_mb()
    receive(payload, topic)
    print(peak_mb() - before_mb, ledger.count())
"""


def filled(head, unit, tail, size_bytes):
    """Return `head`, `unit` again and again separated by commas, and `tail`, about that long."""
    return head + b",".join([unit] * (size_bytes // (len(unit) + 1))) + tail


def keyed(size_bytes):
    """Return a JSON object with as many keys as fit."""
    return b"{" + b",".join(b'"%x":0' % number for number in range(size_bytes // 12)) + b"}"


def good_record(size_bytes):
    """Return a record whose samples are that large."""
    data = base64.b64encode(bytes(size_bytes // 4 * 3 - 8192)).decode()
    return numbered(3, samples=(record.Series(name="latency", unit="ns", dtype="<u4", count=0, data=data),))


def with_value(path, text):
    """Return a record's JSON with raw text in place of what stands at `path`."""
    return with_text(path, text)


SHAPES = {
    "spaces": lambda size: b" " * size,
    "a long string": lambda size: b'[{"id":"' + b"x" * size + b'"}]',
    "a long string in a field": lambda size: with_value("case", b'"' + b"x" * size + b'"'),
    "open lists": lambda size: b"[" * size,
    "nested lists": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "nested objects": lambda size: b'{"a":' * (size // 5),
    "empty objects": lambda size: filled(b"[", b"{}", b"]", size),
    "objects with an id": lambda size: filled(b"[", b'{"id":""}', b"]", size),
    "objects with an id in an object": lambda size: b'{"samples":' + filled(b"[", b'{"id":""}', b"]", size) + b"}",
    "numbers": lambda size: filled(b"[", b"1", b"]", size),
    "strings": lambda size: filled(b"[", b'""', b"]", size),
    "keys at the top": lambda size: b'{"id":"x",' + keyed(size)[1:],
    "keys in an unknown field": lambda size: with_value("case", keyed(size)),
    "keys of temperatures": lambda size: with_value("temperatures_c", keyed(size)),
    "keys of the provenance": lambda size: with_value("provenance", keyed(size).replace(b":0", b':"measured"')),
    "conditions": lambda size: with_value("conditions", filled(b"[", b'{"when":"before"}', b"]", size)),
    "processors": lambda size: with_value("cpus", filled(b"[", b"1", b"]", size)),
    "reasons": lambda size: with_value("other_energy_reasons", filled(b"[", b'""', b"]", size)),
    "samples": lambda size: with_value("samples", b'[{"name":"","unit":"","dtype":"<u4","count":0,"data":"' + b"A" * size + b'"}]'),
    "series": lambda size: with_value("samples", filled(b"[", b'{"name":"","unit":"","dtype":"<u4","count":0,"data":""}', b"]", size)),
    "a good record of that size": good_record,
    "records": lambda size: filled(b"[", numbered(2, samples=()), b"]", size),
    "records with many keys": lambda size: filled(b"[", with_value("temperatures_c", keyed(size // 100)), b"]", size),
    "many small records with keys": lambda size: filled(b"[", with_value("temperatures_c", keyed(20_000)), b"]", size),
}
PACKED = {name: lambda make=make: zlib.compress(make(TEXT_BYTES - 4096), 9) for name, make in SHAPES.items()}
PLAIN = {
    f"{name}, plain": lambda name=name: SHAPES[name](MESSAGE_BYTES - 4096)
    for name in ("objects with an id", "keys of temperatures", "conditions", "series", "records with many keys")
}
BEYOND = {"10 GB of spaces": lambda: bomb(b" ", 10_000), "a bomb in a bomb": lambda: zlib.compress(bomb(b" ", 1024))}
# Just small enough to be decoded whole.
ALLOWED_BYTES = envelope.LARGEST_HEAD_BYTES - 64_000
ALLOWED = {
    f"{name}, as large as is allowed": lambda name=name: SHAPES[name](ALLOWED_BYTES)
    for name in ("keys of temperatures", "keys of the provenance", "conditions", "processors", "reasons")
} | {
    "allowed keys again and again": lambda: zlib.compress(
        filled(b"[", with_value("temperatures_c", keyed(ALLOWED_BYTES)), b"]", TEXT_BYTES - 2 * MEGABYTE)
    )
}
BOMBS = PACKED | PLAIN | BEYOND | ALLOWED


def cost(folder, payload, topic="edgemeter/v1/lab/pi-1/result"):
    """Return by how many MB a message raised the peak of a process that took it, and how many records the ledger has then."""
    (folder / "payload").write_bytes(payload)
    completed = subprocess.run([sys.executable, "-c", CHILD, str(folder), topic], cwd=ROOT, capture_output=True, text=True, check=True)
    growth_mb, count = completed.stdout.split()
    return float(growth_mb), int(count)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_no_message_raises_the_collector_by_more_than_the_limit(tmp_path, name):
    """What it is allowed to be large in is bytes: of text, not of objects built from it."""
    growth_mb, _ = cost(tmp_path, BOMBS[name]())
    assert growth_mb < GROWTH_LIMIT_MB


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["birth", "state", "health"])
def test_a_report_of_a_device_is_bounded_too(tmp_path, kind):
    """16 MB of runtimes are no birth."""
    document = {"device": "pi-1", "fleet": "lab", "session": 1, "agent": "0", "board": None, "os": None, "arch": "x", "state": "online"}
    text = json.dumps(document)[:-1].encode() + b',"told_ns":1,"runtimes":' + keyed(MESSAGE_BYTES).replace(b":0", b':""') + b"}"
    growth_mb, _ = cost(tmp_path, text, f"edgemeter/v1/lab/pi-1/{kind}")
    assert growth_mb < GROWTH_LIMIT_MB / 2
