"""How the agent before this one ended."""

import pytest

from edgemeter.agent.health.health_handler import STOP_MARKER_FILE, StopMarker
from edgemeter.agent.machine.machine import recorded
from tests.fixtures.machine_trees import write

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
    found = StopMarker(tmp_path, board()).last_words
    assert (found.kind, found.text) == ("crash", "ValueError: the spoon is not there")


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
    again = StopMarker(tmp_path, board())
    again.touch()
    assert StopMarker(tmp_path, board()).floor_ns == later_ns


def test_a_disk_that_cannot_be_written_stops_nobody(tmp_path, board):
    """The agent goes on without a marker."""
    (tmp_path / "file").write_text("")
    StopMarker(tmp_path / "file", board()).end(None)
