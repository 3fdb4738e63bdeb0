"""The message `health`: what is taken, and what is not."""

import msgspec
import pytest

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.health import contract
from edgemeter.agent.health.contract import Health

BARE = Health(device="pi-1", fleet="lab", session=7, told_ns=5, agent="1.0")


def test_what_a_newer_device_says_beside_is_left_out():
    """Unknown fields are tolerated: the server may be older than its devices."""
    document = msgspec.json.decode(contract.encode(BARE)) | {"mood": "fine", "disk": {"free_bytes": 5, "colour": "red"}}
    found = contract.decode(msgspec.json.encode(document))
    assert (found.device, found.disk.free_bytes) == ("pi-1", 5)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"device": "pi-1"}',
        contract.encode(BARE)[:-10],
        contract.encode(BARE).replace(b'"waiting_records":0', b'"waiting_records":-1'),
        contract.encode(BARE).replace(b'"told_ns":5', b'"told_ns":NaN'),
        b"[" * 100_000,
        contract.encode(msgspec.structs.replace(BARE, temperatures_c={f"zone{number}": 1.0 for number in range(10_000)})),
    ],
)
def test_what_is_no_health_is_refused_in_one_line(payload):
    """Cut, garbled, foreign, deep or far too long."""
    with pytest.raises(ConfigError, match="not a device's health") as caught:
        contract.decode(payload)
    assert "\n" not in str(caught.value)
