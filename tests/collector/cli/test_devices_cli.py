import json
import time

import msgspec
from click.testing import CliRunner

from edgemeter.agent.contract.health import Clock, Disk, Health
from edgemeter.agent.contract.messages import (
    ACTIVITY_STALE_NS,
    Activity,
    Birth,
    DeviceState,
    Measuring,
    encode_message,
)
from edgemeter.agent.ledger.presence import PresenceChange, RetainedMessage
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector
from tests.fixtures.ledgers import arrival
from tests.fixtures.record_factory import make_record

S = 10**9


def listed(tmp_path, runs, *changes):
    """Return the devices of a ledger as JSON has them, and as a terminal does."""
    with SqliteLedger(tmp_path / "ledger") as ledger:
        ledger.commit(runs, (), changes)
    command = ["devices", "--ledger", str(tmp_path / "ledger")]
    texts = [
        CliRunner().invoke(collector, [*command, *form], catch_exceptions=False).stdout
        for form in (("--format", "json"), ())
    ]
    assert "\x1b" not in texts[1]
    return json.loads(texts[0])["devices"], texts[1]


def test_devices_are_listed_with_presence_records_and_gaps(tmp_path):
    """One device is online with a gap, one only published its birth, one only delivered."""
    birth = Birth(
        device="pi-1",
        fleet="lab",
        session=9,
        agent="0.1.0\x1b[2J",
        board="[red]Pi",
        os=None,
        arch="x",
        runtimes={},
    )
    changes = [
        PresenceChange("lab", "pi-1", birth, S),
        PresenceChange("lab", "pi-1", DeviceState(state="online", session=9), 2 * S),
    ]
    numbers = (
        {"session": 9, "seq": 1},
        {"session": 9, "seq": 4},
        {"device": "pi-3", "session": 2, "seq": 1},
    )
    runs = [arrival(make_record(**number), 5 * S) for number in numbers]
    lost = PresenceChange("lab", "pi-2", DeviceState(state="lost", session=1), 3 * S)
    (first, two, three), output = listed(tmp_path, runs, *changes, lost)
    assert (first["device"], first["state"], first["records"], first["missing"]) == (
        "pi-1",
        "online",
        2,
        2,
    )
    assert (first["since"], first["last_record"]) == (
        "1970-01-01T00:00:02Z",
        "1970-01-01T00:00:05Z",
    )
    assert first["sessions"] == [{"session": 9, "records": 2, "missing": 2}]
    assert (two["device"], two["state"], two["records"], two["last_record"]) == (
        "pi-2",
        "lost",
        0,
        None,
    )
    assert (three["device"], three["state"], three["records"], three["missing"]) == (
        "pi-3",
        None,
        1,
        0,
    )
    assert "[red]Pi" in output


def test_what_a_device_reports_of_its_health_is_listed_with_what_needs_attention(tmp_path):
    """An ending certificate, a full disk and a clock that nothing sets need attention.

    Nothing is listed where all is well.
    """
    well = Health(
        device="pi-1",
        fleet="lab",
        session=9,
        told_ns=S,
        agent="0.2.0",
        clock=Clock(is_synchronised=True),
    )
    ill = msgspec.structs.replace(
        well,
        device="pi-2",
        certificate_not_after_ns=time.time_ns() + 5 * 86_400 * S + 3600 * S,
        clock=Clock(is_synchronised=False),
        disk=Disk(free_bytes=5, size_bytes=100),
    )
    (first, two), output = listed(
        tmp_path, (), *(PresenceChange("lab", health.device, health, S) for health in (well, ill))
    )
    assert (first["look_at"], first["health"]["agent"]) == (None, "0.2.0")
    assert two["look_at"] == (
        "its certificate expires in 5 d; its disk is nearly full: 5 bytes free; its clock is "
        "not synchronised (NTP)"
    )
    assert "its certificate expires in 5 d" in output


def test_what_a_device_measures_now_is_a_line_of_its_own_and_in_json(tmp_path):
    """The line is shown even if a device reported nothing else; a lost one measures nothing."""
    measuring = Measuring(
        suite="nightly\x1b[2J", case="tiny-detector.tflite litert", run=3, runs=12
    )
    report = encode_message(Activity(session=9, measuring=measuring))
    now_ns = time.time_ns()
    retained = [
        RetainedMessage(f"edgemeter/v1/lab/{name}/activity", report, now_ns)
        for name in ("pi-1", "pi-2")
    ]
    old = RetainedMessage("edgemeter/v1/lab/pi-3/activity", report, now_ns - 2 * ACTIVITY_STALE_NS)
    lost = PresenceChange("lab", "pi-2", DeviceState(state="lost", session=9), now_ns)
    devices, output = listed(tmp_path, (), *retained, old, lost)
    by_device = {device["device"]: device["measuring"] for device in devices}
    assert (by_device["pi-1"]["case"], by_device["pi-1"]["run"], by_device["pi-1"]["runs"]) == (
        "tiny-detector.tflite litert",
        3,
        12,
    )
    assert (by_device["pi-1"]["is_stale"], by_device["pi-2"], by_device["pi-3"]["is_stale"]) == (
        False,
        None,
        True,
    )
    assert "pi-1 measures tiny-detector.tflite litert: run 3 of 12 of suite nightly" in output
    assert "pi-2 measures" not in output
    assert "it may have ended" in output
