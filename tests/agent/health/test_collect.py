"""Facts about `edgemeter.agent.health.collect`, which reports on the board and its outbox."""

import os
import platform
import signal
import subprocess
import sys

import msgspec
import pytest

from edgemeter.agent.contract.health import Health, LastStop, decode_health, encode_health
from edgemeter.agent.contract.health_issues import needs_attention
from edgemeter.agent.contract.messages import Receipt
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.health import collect, health_handler
from edgemeter.agent.health.collect import CollectOrder, read_health
from edgemeter.agent.machine.machine import THIS_MACHINE, recorded
from tests.fixtures.machine_trees import write
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import in_folders

BLOCK = "sys/dev/block/179:2"


def test_an_emmc_reports_its_wear_and_a_card_reports_nothing(tmp_path):
    """Wear is given in steps of 10%, for the worse of the two kinds of cells; 0 means undefined."""
    for folder, files, expected in in_folders(
        tmp_path,
        [
            ({"life_time": "0x03 0x01\n", "pre_eol_info": "0x01\n"}, (pytest.approx(0.3), False)),
            ({"life_time": "0x0b 0x02\n", "pre_eol_info": "0x01\n"}, (1.0, True)),
            ({"life_time": "0x00 0x00\n", "pre_eol_info": "0x03\n"}, (None, True)),
            ({"life_time": "0x00 0x00\n", "pre_eol_info": "0x00\n"}, (None, None)),
            ({"life_time": "garbled\n"}, (None, None)),
            ({"name": "SD\n"}, (None, None)),
        ],
    ):
        machine = recorded(
            write(folder, {f"{BLOCK}/device/{name}": text for name, text in files.items()})
        )
        assert collect.wear(BLOCK, machine) == expected, f"{files!r}"


def test_the_disk_of_a_folder_is_counted_and_one_that_is_gone_is_unknown(tmp_path):
    """Free space is never more than the total."""
    disk = collect.read_disk(tmp_path, THIS_MACHINE)
    assert 0 <= disk.free_bytes <= disk.size_bytes
    assert collect.read_disk(tmp_path / "gone", THIS_MACHINE).free_bytes is None


def test_the_reason_of_the_restart_is_what_the_hardware_kept(tmp_path):
    """The kernel's own record of a panic takes precedence over the watchdog's status bit."""
    for folder, files, expected in in_folders(
        tmp_path,
        [
            ({"proc/device-tree/chosen/bootloader/rsts": b"\x00\x00\x10\x00"}, "power on"),
            (
                {"proc/device-tree/chosen/bootloader/rsts": b"\x00\x00\x00\x20"},
                "restart or watchdog",
            ),
            ({"proc/device-tree/chosen/bootloader/rsts": b""}, None),
            (
                {"sys/devices/platform/c360000.pmc/reset_reason": "TEGRA_POWER_ON_RESET\n"},
                "TEGRA_POWER_ON_RESET",
            ),
            ({"sys/class/watchdog/watchdog0/bootstatus": "32\n"}, "watchdog"),
            ({"sys/class/watchdog/watchdog0/bootstatus": "0\n"}, None),
            (
                {
                    "sys/fs/pstore/dmesg-ramoops-0": "Panic",
                    "sys/class/watchdog/watchdog0/bootstatus": "32\n",
                },
                collect.PANIC,
            ),
            ({}, None),
        ],
    ):
        assert collect.read_reset_reason(recorded(write(folder, files))) == expected, f"{files!r}"


@pytest.mark.needs("openssl")
def test_the_end_of_a_certificate_is_read_by_openssl(tmp_path):
    """A real certificate gives its end; a damaged or missing one gives unknown."""
    key, path = tmp_path / "key", tmp_path / "crt"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=pi-1",
    ]
    subprocess.run(
        [*command, "-days", "30", "-keyout", key, "-out", path], check=True, capture_output=True
    )
    printed = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", path],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    end_ns = health_handler.certificate_end_ns(path, THIS_MACHINE)
    date = subprocess.run(
        ["date", "-u", "-d", printed.split("=")[1], "+%s"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert end_ns == int(date) * 10**9
    path.write_text("-----BEGIN CERTIFICATE-----\nMII\n")
    assert health_handler.certificate_end_ns(path, THIS_MACHINE) is None
    assert health_handler.certificate_end_ns(tmp_path / "none", THIS_MACHINE) is None


def test_the_release_before_is_the_other_one(tmp_path):
    """Only an installation made by a fleet has an earlier release."""
    for name in ("1.0", "1.1"):
        (tmp_path / "releases" / name).mkdir(parents=True)
    assert collect.other_release(tmp_path / "releases" / "1.1") == "1.0"
    assert collect.other_release(tmp_path / "venv") is None


ORDER = CollectOrder(
    device="pi-1",
    fleet="lab",
    session=1,
    config=None,
    floor_ns=0,
    last_words=LastStop(kind="first"),
)


@pytest.mark.services
def test_the_process_that_collects_ends_without_a_word_once_its_agent_has_ended():
    """Without a reader it leaves no traceback in the journal of a board whose agent was killed."""
    reading, writing = os.pipe()
    command = [
        sys.executable,
        "-m",
        "edgemeter.agent.health.collect",
        msgspec.json.encode(ORDER).decode(),
    ]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    os.close(reading)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (-signal.SIGPIPE, "")


@pytest.mark.services
def test_the_process_that_collects_prints_the_health_of_this_machine(tmp_path, monkeypatch):
    """The process is started in the same way as the agent starts it."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    child = health_handler.begin_collecting(msgspec.json.encode(ORDER).decode())
    health = decode_health(child.communicate()[0])
    assert (health.device, health.session, health.last_words.kind) == ("pi-1", 1, "first")
    assert health.arch == os.uname().machine
    # By it the fleet chooses a release.
    assert health.python == platform.python_version()
    assert health.disk.free_bytes > 0


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return an empty home of the agent, on a board without sensors."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    monkeypatch.setattr(collect.detect, "detect_sensors", lambda _settings: [])
    return tmp_path


def test_what_has_its_receipt_does_not_wait(home):
    """A confirmed record is kept but does not wait, and without an outbox nothing waits."""
    assert (
        read_health(ORDER, recorded(home)).waiting_records,
        read_health(ORDER, recorded(home)).outbox_trouble,
    ) == (0, None)
    with Outbox(home / "outbox.sqlite") as outbox:
        for _ in range(3):
            outbox.put(make_record(device="pi-1"))
        outbox.forget(Receipt(session=outbox.session, held=((1, 2),)))
    health = read_health(ORDER, recorded(home))
    assert (health.waiting_records, health.dropped_records, health.outbox_trouble) == (1, 0, None)


def test_an_outbox_that_cannot_be_read_is_unknown_and_never_empty(home):
    """The count is unknown, and the unreadable outbox is named."""
    (home / "outbox.sqlite").write_text("shopping list")
    health = decode_health(encode_health(read_health(ORDER, recorded(home))))
    assert isinstance(health, Health)
    assert health.waiting_records is health.dropped_records is None
    assert "is not an edgemeter outbox" in health.outbox_trouble
    assert any(
        issue.startswith("its outbox cannot be read: ")
        for issue in needs_attention(health, health.told_ns)
    )
