"""The folder on a board: what ends it, and what becomes of it."""

import os
import subprocess
import sys

import pytest

from edgemeter.agent.base.errors import TransientError
from edgemeter.provisioning.apply.ssh import SshConnection
from edgemeter.provisioning.elsewhere import board_session
from edgemeter.provisioning.elsewhere.board_session import PROGRAM, BoardSession
from tests.provisioning.elsewhere.board_bench import processes_in, until

pytestmark = [pytest.mark.system_python, pytest.mark.needs("ssh", "sshd")]

PYTHON = "/usr/bin/python3"
RELEASE = "a" * 64


@pytest.fixture
def connection(board):
    """Return a connection to the board."""
    with SshConnection(board.target, board.server.options()) as opened:
        # The first to connect notes the host's key, and says so.
        opened.run(["true"])
        yield opened


def test_commands_run_in_a_folder_that_goes(board, connection):
    """Their errors come line by line, what they wrote is fetched with its hash, and nothing of it reaches the home."""
    lines = []
    with BoardSession(connection, PYTHON, RELEASE, lines.append) as session:
        script = "echo result; echo one >&2; echo 'edgemeter: two' >&2; touch ~/x $TMPDIR/y; exit 3"
        assert session.run("it ran", ["sh", "-c", script], shows=True) == (3, "")
        assert (lines, session.errors) == (["one"], ["two"])
        assert session.fetch("output") == b"result\n"
        assert session.fetch("absent") is None
        assert session.run("it ran", ["sh", "-c", "echo why >&2; exit 4"], shows=False) == (4, "why")
        assert not (board.home / "x").exists()
    assert not session.is_left
    assert board.is_as_before()


def test_a_folder_that_stays_is_found_by_its_release(board, connection):
    """By its hash; a session of another release has a folder of its own beside it."""
    with BoardSession(connection, PYTHON, RELEASE, print) as session:
        (board.home / session.folder / "root").mkdir()
        session.stays = True
    assert session.is_left
    with BoardSession(connection, PYTHON, "b" * 64, print) as other:
        assert (other.has_release, other.folder == session.folder) == (False, False)
    with BoardSession(connection, PYTHON, RELEASE, print) as second:
        assert (second.has_release, second.folder) == (True, session.folder)
        with BoardSession(connection, PYTHON, RELEASE, print) as third:
            assert (third.has_release, third.removed) == (False, 0)
    assert board.is_as_before()


def test_a_lost_connection_ends_what_runs_there_and_removes_the_folder(board, connection):
    """The command that runs too, whatever it has written."""
    lines = []

    def lose(line):
        lines.append(line)
        board.lose_connections()

    lost = pytest.raises(TransientError, match="the connection was lost while it slept, so what runs there ends")
    with BoardSession(connection, PYTHON, RELEASE, lose) as session, lost:
        session.run("it slept", ["sh", "-c", "echo begun >&2; sleep 1000"], shows=True)
    assert lines[0] == "begun"
    until(board.is_as_before)


def test_a_silent_connection_counts_as_lost(tmp_path):
    """A network that drops everything closes nothing: the program there hears no sign of life, and ends."""
    program = PROGRAM.read_text().replace("SILENCE_S, INTERRUPT_S = 45.0, 20.0", "SILENCE_S, INTERRUPT_S = 1.0, 20.0")
    (tmp_path / "home").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", program, RELEASE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"HOME": str(tmp_path / "home")}
    )
    assert process.stdin is not None
    process.stdin.write(b'{"do": "run", "command": ["sleep", "1000"], "shows": false}\n')
    process.stdin.flush()
    assert process.communicate(timeout=60)[0].count(b"\n") == 3
    assert list((tmp_path / "home").iterdir()) == []


def test_a_program_that_was_killed_leaves_a_folder_for_the_next_one_to_remove(board, connection):
    """Nobody locks it any more."""
    with BoardSession(connection, PYTHON, RELEASE, print) as session:
        folder = board.home / session.folder
        (program,) = [pid for pid, words in processes_in(RELEASE).items() if words.startswith(f"{PYTHON} ")]
        os.kill(program, 9)
        with pytest.raises(TransientError):
            session.fetch("output")
    assert folder.exists()
    with BoardSession(connection, PYTHON, "b" * 64, print) as session:
        assert session.removed == 1
    assert board.is_as_before()


@pytest.mark.parametrize("is_put_back", [True, False])
def test_a_board_that_a_power_cut_left_changed_is_put_back_before_its_folder_goes(board, connection, tmp_path, monkeypatch, is_put_back):
    """By the release that is in the folder; what it said comes here."""
    record = tmp_path / "restore.json"
    record.touch()
    (tmp_path / "program.py").write_text(PROGRAM.read_text().replace("/var/lib/edgemeter-restore.json", str(record)))
    monkeypatch.setattr(board_session, "PROGRAM", tmp_path / "program.py")
    python = board.home / ".cache/edgemeter/on-abcdefgh/root/releases/1/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{f'rm {record}' if is_put_back else 'true'}\necho it said so\n")
    python.chmod(0o755)
    lines = []
    with BoardSession(connection, PYTHON, RELEASE, lines.append) as session:
        assert session.removed == 1
    assert any("it said so" in line for line in lines), lines
    assert record.exists() != is_put_back
    assert board.is_as_before()
