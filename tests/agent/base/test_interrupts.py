"""Facts about Ctrl-C and SIGTERM.

No signal is lost, what a block starts is known, and a second signal ends the process.
"""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.errors import INTERRUPTED, TERMINATED
from tests.fixtures.mqtt_peer import wait_until

# A process that handles its signals, and then runs what follows.
HANDLED = """
import os, signal, sys, time
from edgemeter.agent.base import interrupts
interrupts.handle()
print("handled", flush=True)
"""


@pytest.fixture(autouse=True)
def _this_process(monkeypatch):
    """Give each test an interrupt of its own, and the process its handlers back."""
    monkeypatch.setattr(interrupts, "_interrupt", interrupts._Interrupt())
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Dropped:
    """An object whose deletion raises an interrupt, which Python drops."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def lose_ctrl_c():
    dropped = Dropped()
    del dropped


@pytest.mark.parametrize(
    ("number", "raised"),
    [("SIGINT", KeyboardInterrupt), ("SIGTERM", SystemExit), ("SIGHUP", SystemExit)],
)
def test_the_first_signal_raises_where_it_arrives(number, raised):
    """SIGTERM and SIGHUP end the process with the same status."""
    interrupts.handle()
    with pytest.raises(raised) as ended:
        signal.raise_signal(signal.Signals[number])
    assert getattr(ended.value, "code", TERMINATED) == TERMINATED


def test_an_exception_that_python_drops_is_raised_by_the_next_check():
    """Every check raises it until somebody has acknowledged it."""
    interrupts.handle()
    interrupts.check()
    lose_ctrl_c()
    for wait in (interrupts.check, lambda: interrupts.sleep(60), interrupts.check):
        with pytest.raises(KeyboardInterrupt):
            wait()
    interrupts.acknowledge()
    interrupts.check()


def test_only_an_interrupt_that_check_will_raise_is_dropped_in_silence(capsys):
    """Any other exception that Python drops is printed, before and after an interrupt."""

    class Faulty:
        def __del__(self):
            raise ValueError("a fault of the product")

    class Interrupting:
        def __del__(self):
            raise KeyboardInterrupt("of somebody else")

    def printed(kind):
        dropped = kind()
        del dropped
        return capsys.readouterr().err

    interrupts.handle()
    assert "ValueError: a fault of the product" in printed(Faulty)
    assert "KeyboardInterrupt: of somebody else" in printed(Interrupting)
    assert printed(Dropped) == ""
    assert "ValueError: a fault of the product" in printed(Faulty)
    interrupts.acknowledge()
    assert "KeyboardInterrupt: of somebody else" in printed(Interrupting)


def test_a_signal_in_a_deferred_block_is_raised_at_its_end():
    """It is raised at the end of the outermost block, unless `check` raises it before."""
    interrupts.handle()
    steps = []
    # The block raises at its end.
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():  # noqa: PT012
        with interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            steps.append("inner")
        steps.append("outer")
    assert steps == ["inner", "outer"]


def test_a_deferred_block_does_not_raise_an_interrupt_that_was_raised_before():
    """The cleaning up after an interrupt runs to its end."""
    interrupts.handle()
    cleaned = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the cleaning belongs to it
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            with interrupts.deferred():
                cleaned.append("process")
            cleaned.append("folder")
    assert cleaned == ["process", "folder"]


def test_an_ignored_signal_stays_ignored():
    """`nohup edgemeter agent up &` starts a service that ignores SIGHUP."""
    for number in interrupts.SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    interrupts.handle()
    with interrupts.calling(lambda: pytest.fail("an ignored signal was handled")):
        for number in interrupts.SIGNALS:
            signal.raise_signal(number)
    assert [signal.getsignal(number) for number in interrupts.SIGNALS] == [signal.SIG_IGN] * 3


def test_a_service_ends_by_a_call_and_has_its_handlers_back():
    """Nothing is raised, and a signal that comes twice counts once."""
    ended, before = [], signal.getsignal(signal.SIGTERM)
    with interrupts.calling(lambda: ended.append("stopped")):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert ended == ["stopped"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_service_does_not_begin_after_a_lost_interrupt():
    """The service's loop is ended by a call alone and would not look at a flag."""
    interrupts.handle()
    lose_ctrl_c()
    with pytest.raises(KeyboardInterrupt), interrupts.calling(list):
        pytest.fail("the service began")


def test_lines_come_whole_and_end_with_the_pipe():
    """A line may come in several writes, the last one may lack its end, and long ones are split."""
    reading, writing = os.pipe()
    os.write(writing, b"first\nsecond\n\npart")
    with open(reading, "rb") as pipe:  # noqa: PTH123 - a descriptor
        lines = interrupts.lines(pipe, longest_bytes=8)
        assert [next(lines) for _ in range(3)] == [b"first\n", b"second\n", b"\n"]
        os.write(writing, b" two\n0123456789")
        assert [next(lines), next(lines)] == [b"part two\n", b"0123456789"]
        os.write(writing, b"end")
        os.close(writing)
        assert list(lines) == [b"end"]


def test_a_lost_interrupt_ends_the_wait_for_a_line(monkeypatch):
    """Nobody writes to the pipe, so that the wait would never end."""
    monkeypatch.setattr(interrupts, "POLL_S", 0.01)
    interrupts.handle()
    lose_ctrl_c()
    reading, writing = os.pipe()
    # The pipe is a descriptor and has no path.
    with open(reading, "rb") as pipe, pytest.raises(KeyboardInterrupt):  # noqa: PTH123
        next(interrupts.lines(pipe))
    os.close(writing)


def is_running(pid):
    """Return whether a process has not ended; a zombie has."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def start(code):
    process = subprocess.Popen(
        [sys.executable, "-c", HANDLED + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "handled\n"
    return process


@pytest.mark.services
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)]
)
def test_a_second_signal_ends_the_process_with_its_folders_and_children(number, status, tmp_path):
    """The process cleans up after the first signal for longer than anybody wants to wait."""
    code = f"""
import tempfile
folder = tempfile.TemporaryDirectory(dir={str(tmp_path)!r})
process = interrupts.OwnedProcess(["sleep", "600"])
try:
    print(process.pid, flush=True)
    time.sleep(600)
finally:
    print("cleaning", flush=True)
    time.sleep(600)
"""
    process = start(code)
    child = int(process.stdout.readline())
    process.send_signal(number)
    assert process.stdout.readline() == "cleaning\n"
    time.sleep(2 * interrupts._TWICE_S)
    process.send_signal(signal.SIGHUP)
    process.send_signal(number)
    _, err = process.communicate()
    assert (process.returncode, err) == (status, "edgemeter: interrupted again: ended at once\n")
    assert wait_until(lambda: not is_running(child), 10)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.services
def test_an_owned_process_does_not_outlive_its_object():
    """The processes that it started end too, and `end` may be called before."""
    process = interrupts.OwnedProcess(
        ["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE
    )
    child = int(process.stdout.readline())
    process.stdout.close()
    process.end()
    assert process.returncode == -signal.SIGKILL
    assert wait_until(lambda: not is_running(child), 10)
    code = """
process = interrupts.OwnedProcess(["sleep", "600"])
print(process.pid, flush=True)
"""
    with start(code) as process:
        child = int(process.stdout.readline())
        process.communicate()
    assert wait_until(lambda: not is_running(child), 10)


@pytest.mark.services
def test_no_interrupt_is_lost_while_a_process_is_awaited():
    """This holds while its end or its output is awaited.

    A time limit is kept, and a request larger than a pipe arrives whole.
    """
    code = """
class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
process = interrupts.OwnedProcess(["sleep", "600"], stdout=-1)
Dropped()
interrupts.{}(process)
"""
    for wait in ("wait", "communicate"):
        _, err = start(code.format(wait)).communicate()
        assert err.rstrip().endswith("KeyboardInterrupt"), err
    echo = [
        sys.executable,
        "-c",
        "import sys, time; text = sys.stdin.read(); time.sleep(1.2); print(len(text))",
    ]
    process = interrupts.OwnedProcess(
        echo, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert interrupts.communicate(process, bytes(1 << 20)) == (b"1048576\n", b"")
    process = interrupts.OwnedProcess(["sleep", "600"], stdout=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):
        interrupts.communicate(process, limit_s=1)
    process.end()
    process.stdout.close()
