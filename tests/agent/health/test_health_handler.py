"""Facts about `edgemeter.agent.health.health_handler`: when health is reported, and how the agent before ended."""

import os
import subprocess
import sys
import time
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
from edgemeter.agent.machine.machine import recorded
from tests.fixtures.machine_trees import write


class Said:
    """What was published, and a clock that the test sets."""

    def __init__(self):
        self.messages = []
        self.now_s = 0.0
        self.is_busy = False

    def publish(self, topic, payload, *, qos=1, lasting="passing"):
        """Keep one message."""
        self.messages.append((topic, health.decode_health(payload), qos, lasting))
        return True


@pytest.fixture
def published():
    """Return what will be published."""
    return Said()


@pytest.fixture
def handler(tmp_path, published, monkeypatch):
    """Return a handler whose home is a folder of the test."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    context = HandlerContext(
        device="pi-1",
        fleet="lab",
        session=7,
        settings=Config(),
        home=tmp_path,
        config=None,
        publish=published.publish,
        report_challenge=lambda _challenge: None,
        is_connected=lambda: True,
        wake=lambda: None,
        restart=lambda: None,
        log=lambda: ("2026-11-20T12:00:00Z info nothing special",),
    )
    handler = HealthHandler(context, lambda: published.is_busy, lambda: published.now_s)
    yield handler
    handler.close()


def collected(handler, published):
    """Poll the handler until its child has reported."""
    before, deadline = len(published.messages), time.monotonic() + 120
    while len(published.messages) == before and time.monotonic() < deadline:
        handler.poll()
        time.sleep(0.02)
    return published.messages[-1]


def test_the_status_is_reported_at_the_start(handler, published, tmp_path):
    """Retained, under its own session, from a real child; the facts are this machine's."""
    delivery.note_verdict(tmp_path, 5, "valid")
    topic, health, qos, lasting = collected(handler, published)
    assert (topic, qos, lasting) == ("edgemeter/v1/lab/pi-1/health", 1, "retained")
    assert (health.device, health.session, health.runs.verdicts) == ("pi-1", 7, {"valid": 1})
    assert health.last_words.kind == "first"
    assert health.arch == os.uname().machine
    assert health.disk.free_bytes > 0
    assert health.clock.floor_ns is not None


@pytest.mark.services
def test_the_status_is_reported_again_each_day_and_not_before(handler, published):
    """Nothing has changed meanwhile."""
    collected(handler, published)
    published.now_s = DAILY_S - 1
    handler.poll()
    assert len(published.messages) == 1
    published.now_s = DAILY_S
    collected(handler, published)
    assert len(published.messages) == 2


def test_a_board_that_is_slow_today_is_asked_again_soon_and_given_longer(handler, published, monkeypatch, tmp_path, caplog):
    """A child beside which all else starts takes too long: a minute later it has twice the time, and a day is not lost."""
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    real = sys.executable
    monkeypatch.setattr(sys, "executable", str(slow))
    handler.poll()
    published.now_s = COLLECT_TIMEOUT_S
    handler.poll()
    assert caplog.messages == ["collecting the health of this device took more than 120 s; next try in 60 s"]
    published.now_s += PAUSE_S
    handler.poll()
    published.now_s += 2 * COLLECT_TIMEOUT_S - 1
    handler.poll()
    assert len(caplog.messages) == 1
    published.now_s += 1
    handler.poll()
    assert caplog.messages[1:] == ["collecting the health of this device took more than 240 s; next try in 120 s"]
    monkeypatch.setattr(sys, "executable", real)
    published.now_s += 2 * PAUSE_S - 1
    handler.poll()
    assert not published.messages
    published.now_s += 1
    assert collected(handler, published)[1].device == "pi-1"


@pytest.mark.services
def test_a_disk_that_fills_up_is_reported_at_once(handler, published, monkeypatch):
    """Not in a day; but not every minute either while it goes back and forth."""
    collected(handler, published)
    real = os.statvfs
    full = os.statvfs_result((4096, 4096, 1000, 10, 10, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full if isinstance(path, Path) else real(path))
    published.now_s = 60.0
    handler.poll()
    assert len(published.messages) == 1
    published.now_s = AT_MOST_EVERY_S
    collected(handler, published)
    assert len(published.messages) == 2


def test_it_never_collects_beside_a_run(handler, published):
    """What collecting costs would be measured."""
    published.is_busy = True
    for _ in range(20):
        handler.poll()
    assert handler._child is None
    published.is_busy = False
    collected(handler, published)


def test_a_run_is_reported_without_a_child(handler, published, tmp_path):
    """The last verdict follows within minutes, and costs no process."""
    collected(handler, published)
    delivery.note_verdict(tmp_path, 99, "suspect")
    published.now_s = AT_MOST_EVERY_S + 1
    handler.poll()
    assert handler._child is None
    assert published.messages[-1][1].runs.last_ns == 99


def test_refused_orders_are_reported_within_a_minute(handler, published, tmp_path):
    """Their count and the last reason, without a child; a damaged note is none."""
    collected(handler, published)
    refused = health.RefusedOrders(count=3, last_ns=5, reason="not signed")
    for payload, now_s in ((b"{", 1.0), (msgspec.json.encode(refused), 2.0)):
        (tmp_path / health.REFUSED_ORDERS_FILE).write_bytes(payload)
        published.now_s = now_s
        handler.poll()
    assert handler._child is None
    assert [message[1].refused_orders for message in published.messages] == [msgspec.UNSET, refused]


def test_a_broker_that_forgot_gets_the_status_again(handler, published):
    """What it had retained may be gone."""
    handler.connected()
    assert published.messages == []
    first = collected(handler, published)
    handler.connected()
    assert published.messages == [first, first]


def test_the_last_stop_is_reported_by_the_next_start(handler, tmp_path):
    """An error that nobody took is a crash, with its line."""
    try:
        int("no spoon")
    except ValueError:
        handler.close()
    assert StopMarker(tmp_path).last_words.text == "ValueError: invalid literal for int() with base 10: 'no spoon'"
    handler.close()
    last_stop = StopMarker(tmp_path).last_words
    assert (last_stop.kind, last_stop.text) == ("clean", "2026-11-20T12:00:00Z info nothing special")


def test_it_brings_nothing_heavy_into_the_agent_that_stays():
    """What only the child needs is not imported here."""
    code = "import edgemeter.agent.health.health_handler, sys; print([name for name in ('numpy', 'click', 'rich') if name in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert completed.stdout.strip() == "[]"


BOOT = "proc/sys/kernel/random/boot_id"


@pytest.fixture
def board(tmp_path):
    """Return a function that gives the board as it is in a boot, with so many processes ended for want of memory."""

    def booted(name="a", oom=0):
        return recorded(write(tmp_path / "root", {BOOT: f"{name}\n", "proc/vmstat": f"pgfault 5\noom_kill {oom}\n"}))

    return booted


def test_the_first_agent_has_nothing_before_it(tmp_path, board):
    """There is no marker."""
    assert StopMarker(tmp_path, board()).last_words.kind == "first"


def test_an_agent_that_got_a_signal_ended_cleanly(tmp_path, board):
    """SIGTERM, and systemd's at shutdown: also where the board has started anew since."""
    StopMarker(tmp_path, board()).end(None)
    assert StopMarker(tmp_path, board("b")).last_words.kind == "clean"


def test_a_crash_leaves_its_line(tmp_path, board):
    """An exception that nothing caught is reported at the next start: its type and its message."""
    StopMarker(tmp_path, board()).end(ValueError("the spoon is not there"))
    last_stop = StopMarker(tmp_path, board()).last_words
    assert (last_stop.kind, last_stop.text) == ("crash", "ValueError: the spoon is not there")


@pytest.mark.parametrize(("boot", "oom", "kind"), [("b", 0, "power-loss"), ("a", 2, "oom"), ("a", 0, "killed")])
def test_a_stop_without_a_marker_is_judged_by_the_boot_and_the_kernels_count(tmp_path, board, boot, oom, kind):
    """Another boot: the power. The same: memory, or somebody."""
    first = StopMarker(tmp_path, board())
    assert StopMarker(tmp_path, board(boot, oom)).last_words.kind == kind
    assert first.last_words.kind == "first"


def test_a_damaged_marker_is_an_unknown_stop(tmp_path, board):
    """A power cut may leave anything."""
    for content in [b"", b"{", b"\x00" * 40, b'{"boot_id": 5}']:
        (tmp_path / STOP_MARKER_FILE).write_bytes(content)
        assert StopMarker(tmp_path, board()).last_words.kind == "unknown", f"{content!r}"


def test_the_floor_of_the_clock_only_rises(tmp_path, board):
    """The latest time that was ever shown outlives a clock that is set back."""
    marker = StopMarker(tmp_path, board())
    text = (tmp_path / STOP_MARKER_FILE).read_text()
    later_ns = marker.floor_ns + 10**18
    (tmp_path / STOP_MARKER_FILE).write_text(text.replace(f'"floor_ns":{marker.floor_ns}', f'"floor_ns":{later_ns}'))
    StopMarker(tmp_path, board()).touch()
    assert StopMarker(tmp_path, board()).floor_ns == later_ns


def test_a_disk_that_cannot_be_written_stops_nobody(tmp_path, board):
    """The agent goes on without a marker."""
    (tmp_path / "file").write_text("")
    StopMarker(tmp_path / "file", board()).end(None)
