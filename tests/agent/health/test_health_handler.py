"""Facts about `edgemeter.agent.health.health_handler`: when health is reported, and how the agent before ended."""

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
    """In the place of the process that collects: it has ended when the test says so."""

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
    """A handler with what it published, the processes that it began, and a clock that the test sets."""

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
        """Let the handler look at that time, and the process that it begins end; return how many it has begun and published."""
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
    """Retained, as its child has it, which is told who it is and how the last agent ended."""
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
    """A child beside which all else starts takes too long: a minute later it has twice the time, and a day is not lost."""
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
    """Not in a day; but not every minute either while it goes back and forth."""
    device.at(0.0)
    real = os.statvfs
    full = os.statvfs_result((4096, 4096, 1000, 10, 10, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full if isinstance(path, Path) else real(path))
    assert device.at(AT_MOST_EVERY_S - 1) == (1, 1)
    assert device.at(AT_MOST_EVERY_S) == (2, 2)


def test_it_never_collects_beside_a_run(device):
    """What collecting costs would be measured."""
    device.is_busy = True
    assert device.at(1000.0) == (0, 0)
    device.is_busy = False
    assert device.at(1000.0) == (1, 1)


def test_a_run_is_reported_without_a_child(device):
    """The last verdict follows within minutes, and costs no process."""
    device.at(0.0)
    delivery.note_verdict(device.home, 99, "disturbed")
    assert device.at(AT_MOST_EVERY_S - 1) == (1, 1)
    assert device.at(AT_MOST_EVERY_S) == (1, 2)
    assert device.messages[-1][1].runs.last_ns == 99


def test_refused_orders_are_reported_within_a_minute(device):
    """Their count and the last reason, without a child; a damaged note is none."""
    device.at(0.0)
    refused = health.RefusedOrders(count=3, last_ns=5, reason="not signed")
    for payload, now_s in ((b"{", 1.0), (msgspec.json.encode(refused), 2.0)):
        (device.home / REFUSED_ORDERS_FILE).write_bytes(payload)
        device.at(now_s)
    assert len(device.children) == 1
    assert [message[1].refused_orders for message in device.messages] == [None, refused]


def test_a_broker_that_forgot_gets_the_status_again(device):
    """What it had retained may be gone."""
    device.handler.connected()
    assert device.messages == []
    device.at(0.0)
    device.handler.connected()
    assert len(device.messages) == 2
    assert device.messages[0] == device.messages[1]


def test_the_last_stop_is_reported_by_the_next_start(device, tmp_path):
    """An error that nobody took is a crash, with its line."""
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
    """Return a function that gives the board as it is in a boot, with so many processes ended for want of memory."""

    def booted(name="a", oom=0):
        return recorded(
            write(
                tmp_path / "root",
                {BOOT: f"{name}\n", "proc/vmstat": f"pgfault 5\noom_kill {oom}\n"},
            )
        )

    return booted


def test_an_end_is_reported_by_the_next_start(tmp_path, board):
    """A signal, also where the board has started anew since; an exception that nothing caught, by its type and message."""
    assert StopMarker(tmp_path, board()).last_words.kind == "first"
    StopMarker(tmp_path, board()).end(None)
    assert StopMarker(tmp_path, board("b")).last_words.kind == "clean"
    StopMarker(tmp_path, board()).end(ValueError("the spoon is not there"))
    last_stop = StopMarker(tmp_path, board()).last_words
    assert (last_stop.kind, last_stop.text) == ("crash", "ValueError: the spoon is not there")


def test_a_stop_without_a_marker_is_judged_by_the_boot_and_the_kernels_count(tmp_path, board):
    """Another boot: the power. The same: memory, or somebody."""
    StopMarker(tmp_path, board())
    kinds = [
        StopMarker(tmp_path, board(boot, oom)).last_words.kind
        for boot, oom in (("b", 0), ("b", 2), ("b", 2))
    ]
    assert kinds == ["power-loss", "oom", "killed"]


def test_a_damaged_marker_is_an_unknown_stop(tmp_path, board):
    """A power cut may leave anything."""
    for content in [b"", b"{", b"\x00" * 40, b'{"boot_id": 5}']:
        (tmp_path / STOP_MARKER_FILE).write_bytes(content)
        assert StopMarker(tmp_path, board()).last_words.kind == "unknown", f"{content!r}"
    (tmp_path / "file").write_text("")
    StopMarker(tmp_path / "file", board()).end(None)


def test_the_floor_of_the_clock_only_rises(tmp_path, board):
    """The latest time that was ever shown outlives a clock that is set back."""
    marker = StopMarker(tmp_path, board())
    text = (tmp_path / STOP_MARKER_FILE).read_text()
    later_ns = marker.floor_ns + 10**18
    (tmp_path / STOP_MARKER_FILE).write_text(
        text.replace(f'"floor_ns":{marker.floor_ns}', f'"floor_ns":{later_ns}')
    )
    StopMarker(tmp_path, board()).touch()
    assert StopMarker(tmp_path, board()).floor_ns == later_ns
