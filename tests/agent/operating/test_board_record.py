"""The restore record is the board's: whoever starts next finds it, whatever its home and user, and the run lock is free only after it."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.file_lock import RunLock
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.operating import changes, restoring
from tests.fixtures.machine_trees import write
from tests.fixtures.settable_board import SettableBoard

SESSION = """
import sys, time
from pathlib import Path
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.operating import changes
home, root, mode, seconds = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4])
object.__setattr__(THIS_MACHINE, "root", root)
with changes.quiet_board(home, "a session", lambda line: print(line, flush=True)):
    with changes.changed_board(home) as board:
        board.set(OperatingPoint(power_mode=mode, governor="performance"))
        print("set", flush=True)
        time.sleep(seconds)
"""
DEADLINE_S = 60.0
GOVERNOR = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"


@pytest.fixture
def board(tmp_path, monkeypatch):
    """Return a Jetson whose nvpmodel takes a while."""
    jetson = SettableBoard(tmp_path, pause_s=0.5)
    monkeypatch.setenv("PATH", jetson.environment["PATH"])
    monkeypatch.setenv("EDGEMETER_RUN_LOCK", str(tmp_path / "run.lock"))
    return jetson


def start(board, home, mode="15W", seconds=60.0):
    """Start a session of that home, whose temporary folder goes with it."""
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", SESSION, str(home), str(board.root), mode, str(seconds)]
    environment = board.environment | {"TMPDIR": str(home / "tmp")}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def start_and_set(board, home):
    """Return a session that has set the board, and its guardian's process id."""
    process = start(board, home)
    assert process.stdout.readline() == "set\n"
    (guardian,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return process, int(guardian)


def kill(process):
    """Kill a session."""
    process.kill()
    process.wait()
    process.stdout.close()


def wait_until(is_so):
    """Return whether it is so in time."""
    until_s = time.monotonic() + DEADLINE_S
    while not is_so() and time.monotonic() < until_s:
        time.sleep(0.01)
    return is_so()


def end_at_once(guardian):
    """Kill a guardian, which holds the run lock until the system has ended it."""
    process = psutil.Process(guardian)
    process.kill()
    assert wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.services
@pytest.mark.parametrize("guardian_lives", [True, False])
def test_a_session_of_another_home_that_waits_finds_the_board_as_it_was(board, tmp_path, guardian_lives):
    """The killed session's guardian holds the run lock until the board is put back; without it the one that waited puts it back."""
    before = board.settings()
    killed, guardian = start_and_set(board, board.home)
    with start(board, tmp_path / "other", "MAXN_SUPER", 0.1) as waiting:
        assert "is in progress: waiting" in waiting.stdout.readline()
        if not guardian_lives:
            end_at_once(guardian)
        kill(killed)
        lines = waiting.communicate(timeout=DEADLINE_S)[0].splitlines()
        assert waiting.returncode == 0, lines
    assert [line for line in lines if "put back as it was" not in line] == ["set"]
    assert any(f"(pid {killed.pid}, " in line for line in lines) == (not guardian_lives)
    assert board.settings() == before
    assert not board.record.exists()


@pytest.mark.services
def test_the_run_lock_is_held_until_the_guardian_has_put_the_board_back(board):
    """Whoever takes it reads the settings as they were."""
    before = board.settings()
    killed, _ = start_and_set(board, board.home)
    kill(killed)
    lock = RunLock(board.home)
    assert wait_until(lambda: lock.take("edgemeter run"))
    assert (board.settings(), board.record.exists()) == (before, False)
    lock.release()


@pytest.mark.services
@pytest.mark.parametrize("guardian_lives", [True, False])
def test_a_home_that_is_removed_takes_no_record_with_it(board, tmp_path, guardian_lives):
    """As that of a measurement from elsewhere, whose folder goes when the connection is lost."""
    before = board.settings()
    killed, guardian = start_and_set(board, board.home)
    if not guardian_lives:
        end_at_once(guardian)
    kill(killed)
    shutil.rmtree(board.home)
    if not guardian_lives:
        assert "put back as it was" in changes.restore_leftover(tmp_path / "other", board.machine)
    assert wait_until(lambda: not board.record.exists())
    assert board.settings() == before


def leave_changed(board, home):
    """Leave the board changed, as a process that was killed with its guardian."""
    process, guardian = start_and_set(board, home)
    end_at_once(guardian)
    kill(process)


@pytest.mark.services
def test_after_a_power_cut_every_home_finds_the_power_mode(board, tmp_path):
    """It outlives the reboot, which empties the folder of the run lock and the home of a lost connection."""
    leave_changed(board, board.home)
    shutil.rmtree(board.home)
    shutil.rmtree(board.root / "run/lock")
    (board.root / "run/lock").mkdir()
    board.reboot()
    assert "power mode 1" in changes.restore_leftover(tmp_path / "other", board.machine)
    assert board.settings()["var/lib/nvpmodel/status"] == "pmode:0001"


def test_without_power_modes_the_record_lies_beside_the_run_lock(board, monkeypatch):
    """All that it holds is the kernel's own again after a reboot."""
    board.program.unlink()
    monkeypatch.setattr("edgemeter.agent.operating.board_settings.PATH", "")
    with changes.changed_board(board.home, board.machine) as changed:
        changed.set(OperatingPoint(governor="performance"))
        assert not board.record.exists()
        record = json.loads((board.root / "run/lock/edgemeter-restore.json").read_bytes())
        assert (record["settings"]["governor"][GOVERNOR], record["begun"]) == ("schedutil", ["governor"])
    assert list((board.root / "run/lock").glob("*.json")) == []
    assert not board.home.exists()


def test_where_the_boards_folder_cannot_be_written_the_home_holds_the_record(board, monkeypatch):
    """The line names it."""
    monkeypatch.setattr(restoring, "DURABLE_RECORD", "var/lib/none/restore.json")
    with changes.changed_board(board.home, board.machine) as changed:
        changed.set(OperatingPoint(governor="performance"))
        path = board.home / "restore.json"
        content = path.read_bytes()
    assert not path.exists()
    path.write_bytes(content)
    write(board.root, {GOVERNOR: "performance\n"})
    with (
        pytest.raises(
            UnavailableError, match=rf'`sudo env EDGEMETER_HOME={board.home} "\$\(command -v edgemeter\)" doctor` puts them back'
        ),
        changes.changed_board(board.home, board.machine),
    ):
        pass
    assert "put back as it was" in changes.restore_leftover(board.home, board.machine)


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user")
@pytest.mark.services
def test_the_record_of_another_user_is_named_with_the_command(board, tmp_path):
    """In one line; it stays, and nothing is written."""
    leave_changed(board, board.home)
    now = board.settings()
    # The folders above belong to the test's user alone.
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom edgemeter.agent.operating import changes\n"
        "root = os.open(sys.argv[1], os.O_RDONLY)\nos.fchdir(root)\nos.setgid(65534)\nos.setuid(65534)\n"
        "print(changes.restore_leftover(Path('/nonexistent'), changes.Machine(Path('.')), holds_run_lock=True))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, board.root], env=board.environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ended.stdout.count("\n") == 1, ended.stderr
    assert "is of user 0, and each user acts on their own only" in ended.stdout, ended.stderr
    assert ended.stdout.endswith('`sudo "$(command -v edgemeter)" doctor` puts them back\n')
    assert board.settings() == now
    assert "put back as it was" in changes.restore_leftover(tmp_path / "root", board.machine)


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_regular_file_is_no_record(board, kind):
    """Others may write beside the run lock; a pipe would block every start."""
    path = board.root / "run/lock/edgemeter-restore.json"
    {"pipe": lambda: os.mkfifo(path), "link": lambda: path.symlink_to("/etc/passwd"), "folder": path.mkdir}[kind]()
    line = changes.restore_leftover(board.home, board.machine)
    assert f"{str(path)!r} is damaged (not a regular file): nothing was written" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="root gives a file to another user")
@pytest.mark.parametrize("lies", ["beside the lock", "in the home"])
def test_root_puts_back_no_record_that_another_user_planted(board, lies):
    """It is one line with the command of that user, who alone can vouch for it; a board that is to be changed is refused."""
    leave_changed(board, board.home)
    now, content = board.settings(), board.record.read_bytes()
    board.record.unlink()
    folder = board.root / "run/lock" if lies == "beside the lock" else board.home
    planted = folder / ("edgemeter-restore.json" if lies == "beside the lock" else "restore.json")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    planted.write_bytes(content)
    os.chown(planted, 65534, 65534)
    line = changes.restore_leftover(board.home, board.machine, holds_run_lock=True)
    assert f"restore record {str(planted)!r} is of user 65534, and each user acts on their own only" in line
    in_home = f"env EDGEMETER_HOME={board.home} " if lies == "in the home" else ""
    assert f"`sudo -u '#65534' {in_home}\"$(command -v edgemeter)\" doctor` puts them back" in line
    assert "\n" not in line
    with pytest.raises(UnavailableError, match="is of user 65534"), changes.changed_board(board.home, board.machine):
        pass
    assert (board.settings(), planted.read_bytes()) == (now, content)


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "words"),
    [
        (0o1777, 0o666, "can be written by others"),
        (0o1777, 0o664, "can be written by others"),
        (0o777, 0o644, "lies in a folder that others"),
    ],
)
def test_a_record_that_others_can_write_is_named_and_not_put_back(board, folder_mode, file_mode, words):
    """It holds what anybody wrote; of a user the owner of the file tells who."""
    if os.geteuid() != 0 and folder_mode == 0o777:
        pytest.skip("of root the folder counts")
    leave_changed(board, board.home)
    now = board.settings()
    board.record.chmod(file_mode)
    board.record.parent.chmod(folder_mode)
    line = changes.restore_leftover(board.home, board.machine, holds_run_lock=True)
    assert f"restore record {str(board.record)!r} {words}" in line
    assert f"nothing was written: check the board's settings, then remove it: `rm {board.record}`" in line
    assert (board.settings(), board.record.exists()) == (now, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="root gives a file to another user")
def test_a_user_without_the_rights_sees_how_root_takes_the_record_over(board, monkeypatch):
    """Root acts on its own only: who has its rights makes the record root's."""
    leave_changed(board, board.home)
    os.chown(board.record, 65534, 65534)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    governor = board.root / GOVERNOR
    governor.unlink()
    governor.symlink_to("/proc/version")
    line = changes.restore_leftover(board.home, board.machine, holds_run_lock=True)
    assert f"`sudo install -m 644 {board.record} /var/lib/edgemeter-restore.json && sudo rm {board.record} && sudo " in line


@pytest.mark.skipif(os.geteuid() != 0, reason="root gives a folder to another user")
def test_root_changes_no_board_whose_record_others_could_change(board, monkeypatch):
    """Where only the folder of another user can hold it."""
    monkeypatch.setattr(restoring, "DURABLE_RECORD", "var/lib/none/restore.json")
    board.home.mkdir()
    os.chown(board.home, 65534, 65534)
    before = board.settings()
    with (
        pytest.raises(ConfigError, match=r"others can change .*home.*: set EDGEMETER_HOME"),
        changes.changed_board(board.home, board.machine),
    ):
        pass
    assert (board.settings(), list(board.home.glob("restore*"))) == (before, [])
