"""Facts about `edgemeter.agent.power.world`: real commands."""

import sys
import tempfile
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.machine import machine
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.world import CommandProcess, run_command
from tests.fixtures.ordinary_user import closed_mode, ordinary_user


def test_a_command_is_heard_whatever_its_exit_status():
    """Both streams and the status: old firmware says its errors on standard output and ends with 0."""
    printed = run_command([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"])
    assert (printed.stdout, printed.stderr, printed.status) == ("out\n", "err\n", 3)


def test_a_command_that_is_not_there_is_absent_and_one_that_may_not_be_run_is_not(tmp_path):
    """The first is no fault of the machine."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    for start in (run_command, CommandProcess):
        with pytest.raises(AbsentError, match="no-such-command"):
            start(["no-such-command"])
        with pytest.raises(UnavailableError, match="run it by hand") as refusal:
            start([str(program)])
        assert not isinstance(refusal.value, AbsentError)


def test_an_absent_command_is_absent_though_a_folder_of_path_is_closed(monkeypatch):
    """What PATH holds of another user, after `sudo -u`, proves nothing about the machine."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "closed").mkdir()
        Path(folder).chmod(closed_mode())
        monkeypatch.setenv("PATH", f"{folder}/closed:/usr/bin")
        for start in (run_command, CommandProcess):
            with ordinary_user(), pytest.raises(AbsentError, match="no-such-command"):
                start(["no-such-command"])
        Path(folder).chmod(0o700)


def test_a_command_that_takes_too_long_is_a_reading_that_failed(monkeypatch):
    """It is ended, not waited for."""
    monkeypatch.setattr(machine, "COMMAND_TIMEOUT_S", 0.2)
    with pytest.raises(TransientError, match=r"took longer than 0\.2 s"):
        run_command(["sleep", "5"])


def test_lines_come_as_they_are_printed_and_the_end_is_reported():
    """Several in one write, half a line held back until its rest comes."""
    program = "import sys, time\nfor part in ('a\\nb\\nc', 'd\\n'):\n    sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.1)"
    lines = CommandProcess([sys.executable, "-u", "-c", program])
    assert [lines.line(5), lines.line(5), lines.line(5)] == ["a", "b", "cd"]
    with pytest.raises(UnavailableError, match="ended unexpectedly"):
        lines.line(5)
    lines.close()
    lines.close()
    with pytest.raises(UnavailableError, match="closed"):
        lines.line(5)


def test_silence_is_a_reading_that_failed_and_closing_ends_the_command():
    """The next line may come."""
    lines = CommandProcess(["sleep", "30"])
    with pytest.raises(TransientError, match="printed nothing"):
        lines.line(0.05)
    lines.close()
    assert lines._process.poll() is not None
