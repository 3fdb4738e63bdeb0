"""What of a device's health can be true, and what a board cannot make people read."""

import msgspec

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.health import Clock, Disk, Health, RecentRuns, Sensor, decode_health, encode_health
from edgemeter.agent.contract.plausible_health import plausible_health
from tests.fixtures.rows import table_row

NOW_NS = 1_800_000_000_000_000_000
HONEST = Health(
    device="pi-1",
    fleet="lab",
    session=1,
    told_ns=NOW_NS,
    agent="0.9",
    board="Raspberry Pi 5",
    sensors=(Sensor(name="ina219"),),
    certificate_not_after_ns=NOW_NS + 400 * NS_PER_DAY,
    clock=Clock(offset_ms=-0.2),
    disk=Disk(free_bytes=10**9, size_bytes=10**10),
    waiting_records=3,
    runs=RecentRuns(last_ns=NOW_NS, last_verdict="valid", verdicts={"valid": 97, "suspect": 3}),
    temperatures_c={"cpu": 61.5},
    uptime_s=12.5,
)


def test_what_no_board_measures_is_left_out_and_named():
    """Counts of 2**53 runs, a certificate of centuries, more free than there is: by the name that people see. An honest report stays."""
    for name, changes, field, expected in (
        ("verdicts", {"runs": RecentRuns(verdicts={"valid": 2**53 - 1})}, "runs", RecentRuns()),
        ("verdicts", {"runs": RecentRuns(verdicts={str(number): 1 for number in range(1000)})}, "runs", RecentRuns()),
        ("last run", {"runs": RecentRuns(last_ns=2**63 - 1)}, "runs", RecentRuns()),
        ("certificate", {"certificate_not_after_ns": NOW_NS + 85_972 * NS_PER_DAY}, "certificate_not_after_ns", None),
        ("disk", {"disk": Disk(free_bytes=11, size_bytes=10)}, "disk", Disk(size_bytes=10)),
        ("outbox", {"waiting_records": 2**53 - 1}, "waiting_records", 0),
        ("temperatures", {"temperatures_c": {"cpu": 1e300}}, "temperatures_c", {}),
        ("clock", {"clock": Clock(offset_ms=1e300)}, "clock", Clock()),
        ("uptime", {"uptime_s": -1.0}, "uptime_s", None),
    ):
        with table_row(name, changes):
            health, doubts = plausible_health(msgspec.structs.replace(HONEST, **changes), NOW_NS)
            assert (doubts, getattr(health, field)) == ((name,), expected)
    assert plausible_health(HONEST, NOW_NS) == (HONEST, ())


def test_every_text_is_on_one_line_and_runs_one_way():
    """Line breaks, escapes and changes of direction in any text, also in the names of sensors and temperatures."""
    evil = "a\nb\x1b[2J\u202ec\u2066d\u2028e\x00"
    reported = msgspec.structs.replace(
        HONEST, agent=evil, board=evil, bad_agents=(evil,), sensors=(Sensor(name=evil, trouble=evil),), temperatures_c={evil: 1.0}
    )
    health, _ = plausible_health(decode_health(encode_health(reported)), NOW_NS)
    text = encode_health(health).decode()
    assert text.isprintable()
    assert "\\" not in text
