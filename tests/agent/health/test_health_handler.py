"""Facts about `edgemeter.agent.health.health_handler`, which decides when to report health.

It also reports how the previous agent ended.
"""

import json
import os
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.config import Config
from edgemeter.agent.contract import health
from edgemeter.agent.daemon.handler import HandlerContext
from edgemeter.agent.delivery import delivery
from edgemeter.agent.health.health_handler import (
    AT_MOST_EVERY_S,
    COLLECT_TIMEOUT_S,
    DAILY_S,
    PAUSE_S,
    STOP_MARKER_FILE,
    HealthHandler,
    StopMarker,
)
from edgemeter.agent.identity.service_signature import REFUSED_ORDERS_FILE
from edgemeter.agent.machine.machine import recorded
from tests.fixtures.machine_trees import write


class Child:
    """A stand-in for the process that collects, which has ended when the test says so."""

    def __init__(self, order):
        self.order = json.loads(order)
        self.returncode = None
        self.payload = b""
        self.is_killed = False

    def poll(self):
        return self.returncode

    def communicate(self):
        return self.payload, None

    def kill(self):
        self.is_killed = True


class Board:
    """A handler with what it published, the processes it started and a clock the test sets."""

    def __init__(self, home):
        self.home = home
        self.messages = []
        self.children = []
        self.now_s = 0.0
        self.is_busy = False
        context = HandlerContext(
            device="pi-1",
            fleet="lab",
            session=7,
            settings=Config(),
            home=home,
            config=None,
            publish=self.publish,
            report_challenge=lambda _challenge: None,
            is_connected=lambda: True,
            wake=lambda: None,
            restart=lambda: None,
            log=lambda: ("2026-11-20T12:00:00Z info nothing special",),
        )
        self.handler = HealthHandler(context, lambda: self.is_busy, lambda: self.now_s, self.begin)

    def begin(self, order):
        self.children.append(Child(order))
        return self.children[-1]

    def publish(self, topic, payload, *, qos=1, lasting="passing"):
        self.messages.append((topic, health.decode_health(payload), qos, lasting))
        return True

    def at(self, now_s, status=0):
        """Poll the handler at that time, and let the process it starts end.

        Return how many processes it has started and how many messages it has published.
        """
        self.now_s = now_s
        count = len(self.children)
        self.handler.poll()
        if len(self.children) > count:
            child = self.children[-1]
            child.returncode, child.payload = (
                status,
                health.encode_health(HEALTH) if status == 0 else b"",
            )
            self.handler.poll()
        return len(self.children), len(self.messages)


HEALTH = health.Health(device="pi-1", fleet="lab", session=7, told_ns=5, agent="1.0")


@pytest.fixture
def device(tmp_path):
    new_board = Board(tmp_path)
    yield new_board
    new_board.handler.close()


def test_the_status_is_reported_at_the_start_and_each_day_and_not_before(device):
    """The message is retained, and the child learns who it is and how the last agent ended."""
    assert device.at(0.0) == (1, 1)
    assert device.messages == [("edgemeter/v1/lab/pi-1/health", HEALTH, 1, "retained")]
    order = device.children[0].order
    assert (order["device"], order["fleet"], order["session"], order["last_words"]["kind"]) == (
        "pi-1",
        "lab",
        7,
        "first",
    )
    assert order["floor_ns"] > 0
    assert device.at(DAILY_S - 1) == (1, 1)
    assert device.at(DAILY_S) == (2, 2)


def test_a_board_that_is_slow_today_is_asked_again_soon_and_given_longer(device, caplog):
    """A child that takes too long is started again a minute later with twice the time.

    A board that is busy at its start does not lose a day's report.
    """
    for now_s, count in (
        (0.0, 1),
        (COLLECT_TIMEOUT_S - 1, 1),
        (COLLECT_TIMEOUT_S, 1),
        (COLLECT_TIMEOUT_S + PAUSE_S - 1, 1),
    ):
        device.now_s = now_s
        device.handler.poll()
        assert len(device.children) == count
    assert device.children[0].is_killed
    begun_s = device.now_s = COLLECT_TIMEOUT_S + PAUSE_S
    device.handler.poll()
    device.now_s = begun_s + 2 * COLLECT_TIMEOUT_S - 1
    device.handler.poll()
    assert (len(device.children), device.children[1].is_killed) == (2, False)
    device.now_s += 1
    device.handler.poll()
    assert device.children[1].is_killed
    assert len(caplog.messages) == 2
    failed_s = device.now_s
    assert device.at(failed_s + 2 * PAUSE_S - 1) == (2, 0)
    assert device.at(failed_s + 2 * PAUSE_S, status=1) == (3, 0)
    assert device.at(failed_s + 6 * PAUSE_S) == (4, 1)


def test_a_disk_that_fills_up_is_reported_at_once(device, monkeypatch):
    """The report does not wait a day, nor repeat every minute while the level fluctuates."""
    device.at(0.0)
    real = os.statvfs
    full = os.statvfs_result((4096, 4096, 1000, 10, 10, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full if isinstance(path, Path) else real(path))
    assert device.at(AT_MOST_EVERY_S - 1) == (1, 1)
    assert device.at(AT_MOST_EVERY_S) == (2, 2)


def test_it_never_collects_beside_a_run(device):
    """Collecting during a run would be measured with it."""
    device.is_busy = True
    assert device.at(1000.0) == (0, 0)
    device.is_busy = False
    assert device.at(1000.0) == (1, 1)


def test_a_run_is_reported_without_a_child(device):
    """The last verdict is reported within minutes and needs no process."""
    device.at(0.0)
    delivery.note_verdict(device.home, 99, "disturbed")
    assert device.at(AT_MOST_EVERY_S - 1) == (1, 1)
    assert device.at(AT_MOST_EVERY_S) == (1, 2)
    assert device.messages[-1][1].runs.last_ns == 99


def test_refused_orders_are_reported_within_a_minute(device):
    """The count and the last reason are reported without a child; a damaged note is ignored."""
    device.at(0.0)
    refused = health.RefusedOrders(count=3, last_ns=5, reason="not signed")
    for payload, now_s in ((b"{", 1.0), (msgspec.json.encode(refused), 2.0)):
        (device.home / REFUSED_ORDERS_FILE).write_bytes(payload)
        device.at(now_s)
    assert len(device.children) == 1
    assert [message[1].refused_orders for message in device.messages] == [None, refused]


def test_a_broker_that_forgot_gets_the_status_again(device):
    """A broker may have lost its retained messages."""
    device.handler.connected()
    assert device.messages == []
    device.at(0.0)
    device.handler.connected()
    assert len(device.messages) == 2
    assert device.messages[0] == device.messages[1]


def test_the_last_stop_is_reported_by_the_next_start(device, tmp_path):
    """An exception that nothing caught is a crash, reported with its line."""
    try:
        int("no spoon")
    except ValueError:
        device.handler.close()
    assert (
        StopMarker(tmp_path).last_words.text
        == "ValueError: invalid literal for int() with base 10: 'no spoon'"
    )
    device.handler.close()
    last_stop = StopMarker(tmp_path).last_words
    assert (last_stop.kind, last_stop.text) == (
        "clean",
        "2026-11-20T12:00:00Z info nothing special",
    )


BOOT = "proc/sys/kernel/random/boot_id"


@pytest.fixture
def board(tmp_path):
    """Return a function that gives the board in a boot, with a count of out-of-memory kills."""

    def booted(name="a", oom=0):
        return recorded(
            write(
                tmp_path / "root",
                {BOOT: f"{name}\n", "proc/vmstat": f"pgfault 5\noom_kill {oom}\n"},
            )
        )

    return booted


def test_an_end_is_reported_by_the_next_start(tmp_path, board):
    """A signal is a clean end, also after a reboot; an uncaught exception is a crash.

    A crash is reported with the exception's type and message.
    """
    assert StopMarker(tmp_path, board()).last_words.kind == "first"
    StopMarker(tmp_path, board()).end(None)
    assert StopMarker(tmp_path, board("b")).last_words.kind == "clean"
    StopMarker(tmp_path, board()).end(ValueError("the spoon is not there"))
    last_stop = StopMarker(tmp_path, board()).last_words
    assert (last_stop.kind, last_stop.text) == ("crash", "ValueError: the spoon is not there")


def test_a_stop_without_a_marker_is_judged_by_the_boot_and_the_kernels_count(tmp_path, board):
    """Another boot means a power cut; the same boot means lack of memory or a kill by somebody."""
    StopMarker(tmp_path, board())
    kinds = [
        StopMarker(tmp_path, board(boot, oom)).last_words.kind
        for boot, oom in (("b", 0), ("b", 2), ("b", 2))
    ]
    assert kinds == ["power-loss", "oom", "killed"]


def test_a_damaged_marker_is_an_unknown_stop(tmp_path, board):
    """A power cut may leave any bytes in the marker."""
    for content in [b"", b"{", b"\x00" * 40, b'{"boot_id": 5}']:
        (tmp_path / STOP_MARKER_FILE).write_bytes(content)
        assert StopMarker(tmp_path, board()).last_words.kind == "unknown", f"{content!r}"
    (tmp_path / "file").write_text("")
    StopMarker(tmp_path / "file", board()).end(None)


def test_the_floor_of_the_clock_only_rises(tmp_path, board):
    """The latest time ever seen is kept when the clock is set back."""
    marker = StopMarker(tmp_path, board())
    text = (tmp_path / STOP_MARKER_FILE).read_text()
    later_ns = marker.floor_ns + 10**18
    (tmp_path / STOP_MARKER_FILE).write_text(
        text.replace(f'"floor_ns":{marker.floor_ns}', f'"floor_ns":{later_ns}')
    )
    StopMarker(tmp_path, board()).touch()
    assert StopMarker(tmp_path, board()).floor_ns == later_ns
