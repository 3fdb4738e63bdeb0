"""The message `health`: what is taken, and what is not."""

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import health
from edgemeter.agent.contract.health import Health
from tests.fixtures.rows import table_row

BARE = Health(device="pi-1", fleet="lab", session=7, told_ns=5, agent="1.0")


def test_unknown_fields_of_a_newer_device_are_left_out():
    """The server may be older than its devices, so unknown fields are tolerated."""
    document = msgspec.json.decode(health.encode_health(BARE)) | {
        "mood": "fine",
        "disk": {"free_bytes": 5, "colour": "red"},
    }
    decoded = health.decode_health(msgspec.json.encode(document))
    assert (decoded.device, decoded.disk.free_bytes) == ("pi-1", 5)


def test_what_is_no_health_is_refused_in_one_line():
    """Text that is cut, garbled, foreign, deep or far too long is refused."""
    for payload in [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"device": "pi-1"}',
        health.encode_health(BARE)[:-10],
        health.encode_health(BARE).replace(b'"waiting_records":null', b'"waiting_records":-1'),
        health.encode_health(BARE).replace(b'"told_ns":5', b'"told_ns":NaN'),
        b"[" * 100_000,
        health.encode_health(
            msgspec.structs.replace(
                BARE, temperatures_c={f"zone{number}": 1.0 for number in range(10_000)}
            )
        ),
    ]:
        with (
            table_row(payload[:40]),
            pytest.raises(ConfigError, match="not a device's health") as refusal,
        ):
            health.decode_health(payload)
        assert "\n" not in str(refusal.value), f"{payload[:40]!r}"


def test_what_no_board_can_be_is_refused():
    """Counts of 2**53 runs, a sensor as hot as the sun and a clock off by ages are refused."""
    for changes in (
        {"runs": health.RecentRuns(verdicts={"ok": 2**53 - 1})},
        {"runs": health.RecentRuns(verdicts={str(number): 1 for number in range(1000)})},
        {"temperatures_c": {"cpu": 1e300}},
        {"clock": health.Clock(offset_ms=1e300)},
        {"uptime_s": -1.0},
    ):
        with table_row(changes), pytest.raises(ConfigError, match="not a device's health"):
            health.decode_health(health.encode_health(msgspec.structs.replace(BARE, **changes)))


def test_every_text_is_on_one_line_and_runs_one_way():
    """Line breaks, escapes and changes of direction are removed from every text.

    The names of sensors and temperatures are such texts too.
    """
    evil = "a\nb\x1b[2J\u202ec\u2066d\u2028e\x00"
    reported = msgspec.structs.replace(
        BARE,
        agent=evil,
        board=evil,
        bad_agents=(evil,),
        sensors=(health.Sensor(name=evil, trouble=evil),),
        temperatures_c={evil: 1.0},
    )
    text = health.encode_health(health.decode_health(health.encode_health(reported))).decode()
    assert text.isprintable()
    assert "\\" not in text
