"""Facts about `edgemeter.agent.power.fnirsi`: a real pseudo-terminal plays the device."""

import fcntl
import os
import pty
import sys
import termios
import threading
import time
import tty
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace

import pytest

from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.power import AbsentError, fnirsi
from edgemeter.agent.power.fnirsi import Fnirsi
from tests.fixtures.machine_trees import write
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.power.make_usb_meters import fnirsi_packet
from tests.fixtures.rows import table_row


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Let the driver tell a meter the next thing at once."""
    monkeypatch.setattr(
        fnirsi,
        "time",
        SimpleNamespace(
            sleep=lambda _: None, monotonic=time.monotonic, monotonic_ns=time.monotonic_ns
        ),
    )


def hang_up(master, slave, thread):
    """Close both ends, ours only once the thread that reads it has ended.

    The next test's device gets the same number.
    """
    os.close(slave)
    thread.join()
    os.close(master)


@contextmanager
def device(*packets):
    """Yield the name of a device that sends `packets` once asked to begin, and its requests.

    The thread that plays the device comes third.
    """
    master, slave = pty.openpty()
    tty.setraw(slave)
    requests = []

    def play():
        with suppress(OSError):
            while len(requests) < 3:
                requests.append(os.read(master, 65))
            for packet in packets:
                os.write(master, packet)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield os.ttyname(slave), requests, thread
    finally:
        hang_up(master, slave, thread)


def waiting_bytes(descriptor):
    """Return how many bytes can be read without waiting."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


@contextmanager
def asked_device(*, answers=1000, swallows=()):
    """Yield the name of a meter like the FNB48, and its requests.

    It answers the n-th request to go on with one packet of n x 10 mA. When it is asked to begin it
    says what it is, and it swallows the requests at the positions `swallows`.
    """
    master, slave = pty.openpty()
    tty.setraw(slave)
    requests = []

    def play():
        with suppress(OSError):
            while True:
                request = os.read(master, 65)
                requests.append(request[2])
                if request[2] == fnirsi.START:
                    os.write(master, fnirsi_packet([(9.0, 9.0)] * 4, kind=0x03))
                if (
                    request[2] == fnirsi.GO_ON
                    and requests.count(fnirsi.GO_ON) not in swallows
                    and requests.count(fnirsi.GO_ON) <= answers
                ):
                    os.write(master, fnirsi_packet([(5.0, requests.count(fnirsi.GO_ON) / 100)] * 4))

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield os.ttyname(slave), requests
    finally:
        hang_up(master, slave, thread)


def hidraw(root, numbers, name):
    """Write a hidraw device with these USB numbers, of which `name` is the port."""
    vendor, product = numbers
    write(
        root,
        {"sys/class/hidraw/hidraw1/device/uevent": f"HID_ID=0003:0000{vendor}:0000{product}\n"},
    )
    (root / "dev").mkdir()
    (root / "dev/hidraw1").symlink_to(name)


def test_a_meter_that_replies_once_a_request_gets_one_after_each_packet(tmp_path):
    """With one request a second, FNB48 and C1 would give only one reading in ten."""
    with asked_device() as (name, requests), closing(Fnirsi(root=tmp_path)) as sensor:
        hidraw(tmp_path, ("0483", "003B"), name)
        assert sensor.describe().id == "fnirsi:C1"
        powers_w = [sensor.read().power_w for _ in range(10)]
    # Two packets a reading, each once and in their order.
    assert powers_w == pytest.approx([5 * (4 * n + 3) / 200 for n in range(10)])
    assert requests[:3] == [fnirsi.START, fnirsi.NEXT, fnirsi.GO_ON]
    assert 20 <= requests.count(fnirsi.GO_ON) <= 21


def test_a_request_that_was_lost_is_made_again(tmp_path, monkeypatch):
    """One reading fails, and the next one asks again and succeeds."""
    with asked_device(swallows={3}) as (name, _), closing(Fnirsi(root=tmp_path)) as sensor:
        hidraw(tmp_path, ("0483", "003A"), name)
        assert sensor.read().power_w == pytest.approx(5 * 0.015)
        with monkeypatch.context() as patch:
            patch.setattr(fnirsi, "TIMEOUT_S", 0.2)
            with pytest.raises(TransientError, match="sent nothing"):
                sensor.read()
        assert sensor.read().power_w == pytest.approx(5 * 0.045)


def test_a_meter_that_sends_by_itself_gets_a_request_once_a_second(tmp_path, monkeypatch):
    """FNB58 and FNB48S begin after two 0x82 requests and need no request for each packet."""
    now_ns = [0]
    packets = [fnirsi_packet([(5.0, 1.0)] * 4)] * 3
    with (
        device(*packets) as (name, requests, thread),
        closing(Fnirsi(root=tmp_path, clock=lambda: now_ns[0])) as sensor,
    ):
        hidraw(tmp_path, ("2E3C", "0049"), name)
        assert sensor.describe().id == "fnirsi:FNB48S"
        thread.join(150)
        # The kernel hands them to the other end by a worker of its own.
        assert wait_until(lambda: waiting_bytes(sensor._descriptor) == sum(map(len, packets)))
        assert sensor.read().power_w == pytest.approx(5.0)
        # With their checksums, as the meter's own software sends them.
        assert [(request[2], request[-1]) for request in requests] == [
            (0x81, 0x8E),
            (0x82, 0x96),
            (0x82, 0x96),
        ]
        told_ns, now_ns[0] = sensor._told_ns, int(1.1e9)
        monkeypatch.setattr(fnirsi, "TIMEOUT_S", 0.1)
        with pytest.raises(TransientError, match="sent nothing"):
            sensor.read()
        assert (told_ns, sensor._told_ns) == (0, int(1.1e9))


def reading_of(*packets):
    with device(*packets) as (name, _, thread), closing(Fnirsi(name)) as sensor:
        sensor.describe()
        thread.join(150)
        return sensor.read()


def test_a_packet_is_four_samples():
    """Their mean power is not the product of the mean voltage and current."""
    packet = fnirsi_packet([(5.0, 1.0), (5.0, 3.0), (4.0, 1.0), (6.0, 3.0)])
    assert reading_of(packet, packet).power_w == pytest.approx((5 + 15 + 4 + 18) / 4)


def test_a_packet_of_another_form_or_an_impossible_one_gives_no_number(monkeypatch):
    """A wrong first byte, a cut packet and more power than any such meter carries are refused."""
    monkeypatch.setattr(fnirsi, "TIMEOUT_S", 0.05)
    valid = fnirsi_packet([(5.0, 1.0)] * 4)
    for packet in (fnirsi_packet([(500.0, 1.0)] * 4), b"\xab" + valid[1:], valid[:-1]):
        with table_row(packet), pytest.raises(TransientError):
            reading_of(packet)


def test_a_meter_is_found_by_its_usb_numbers(tmp_path):
    """Other devices of the same kind, such as a keyboard, are passed over."""
    with pytest.raises(AbsentError, match="no FNIRSI"):
        Fnirsi(root=tmp_path).describe()
    write(tmp_path, {
        "sys/class/hidraw/hidraw0/device/uevent":
            "DRIVER=hid-generic\nHID_ID=0003:0000046D:0000C31C\n",
        "sys/class/hidraw/hidraw1/device/uevent":
            "DRIVER=hid-generic\nHID_ID=0003:00002E3C:00005558\n",
    })  # fmt: skip
    with pytest.raises(AbsentError, match="hidraw1"):
        Fnirsi(root=tmp_path).describe()
    with device(fnirsi_packet([(5.0, 1.0)] * 4)) as (name, _, _):
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/hidraw1").symlink_to(name)
        with closing(Fnirsi(root=tmp_path)) as sensor:
            assert sensor.describe().id == "fnirsi:FNB58"
            assert sensor.read().power_w == pytest.approx(5.0)
