"""A number that no reader holds, over a real broker: it is rejected by name, and the page and the trend go on."""

import http.client
import json

import msgspec
import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.collecting import TUNED, collecting
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import peer, started
from tests.fixtures.served_page import served
from tests.fixtures.servers import mosquitto

pytestmark = pytest.mark.mosquitto

TOPIC = "edgemeter/v1/lab/pi-1/result"


def message(seq, **changes):
    """Return a record as it travels, with fields of any kind put in."""
    document = msgspec.json.decode(record.encode(make_run(session=5, seq=seq)))
    for path, value in changes.items():
        *parts, name = path.split("__")
        part = document
        for step in parts:
            part = part[step]
        part[name] = value
    return msgspec.json.encode(document)


def test_a_number_beyond_64_bits_is_quarantined_and_stops_nothing(tmp_path):
    """In each field in which one was stored and receipted before; the record after it gets its receipt."""
    fields = ("seed", "batch", "repeat", "runtime__threads", "latency__count", "monotonic_ns")
    path = tmp_path / "ledger.sqlite"
    with started(mosquitto(tmp_path, *TUNED)) as broker, collecting(broker, path), peer(broker, f"{TOPIC[:-6]}receipt") as device:
        for seq, field in enumerate(fields, start=1):
            device.session.publish(TOPIC, message(seq, **{field: 2**64}))
        device.session.publish(TOPIC, message(len(fields) + 1))
        assert wait_until(lambda: device.messages, 60)
    with SqliteLedger(path, "read") as ledger:
        assert [entry.record.seq for entry in ledger.records()] == [len(fields) + 1]
        reasons = [entry.reason for entry in ledger.quarantined()]
    for field, reason in zip(fields, reasons, strict=True):
        assert reason.startswith("not a run record: Expected `int` <= ")
        assert reason.endswith(f"at `$.{field.replace('__', '.')}`")
    trend = edgemeter("trend", "--ledger", path, "--json")
    assert trend.returncode == 0, trend.stderr
    assert json.loads(trend.stdout)["series"]
    with served(path) as page:
        connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=100)
        connection.request("GET", "/")
        response = connection.getresponse()
        assert response.status == 200
        assert "tiny-detector" in response.read().decode()
        connection.close()
