"""`fleet apply` sends a module to devices that sets power modes and governors.

The module needs the standard library alone.
"""

import subprocess

import pytest

from edgemeter.agent.operating import board_settings
from edgemeter.agent.operating.board_settings import SettingError
from tests.fixtures.rows import table_row


def test_a_mode_has_a_name_and_a_number(board, tmp_path):
    """An unknown mode is refused with the known ones; without nvpmodel.conf there are none."""
    assert board_settings.power_mode_of("MAXN_SUPER", board.root) == "2"
    assert board_settings.power_mode_of("2", board.root) == "2"
    with pytest.raises(SettingError, match="'30W': there are 15W, 25W, MAXN_SUPER, 7W"):
        board_settings.power_mode_of("30W", board.root)
    with pytest.raises(SettingError, match="which a Jetson has"):
        board_settings.power_mode_of("15W", tmp_path)


SET_25W = "NV Power Mode: 25W\n1\n"
SET_15W = "NV Power Mode: 15W\n0\n"


def test_a_mode_that_does_not_change_is_refused(monkeypatch):
    """The error gives nvpmodel's last output and the remedy."""
    for query, status, printed, words in [
        # In a container it notes the mode, and changes nothing.
        (SET_15W, 0, "Running in chroot, ignoring request", "outside of a container"),
        (
            SET_25W,
            0,
            "Reboot required for changing to this power mode: 0",
            "`sudo nvpmodel -m 0`, and answer yes",
        ),
        (SET_25W, 1, "", "(status 1: no message): run it as root"),
        # Where nobody can answer its question it ends well, and changes nothing.
        (SET_25W, 0, "set", "it needs a reboot"),
        (SET_15W, -9, "set", "(status -9: set)"),
        ("nothing", 0, "", "reports no power mode: nothing"),
    ]:
        with table_row(query, status, printed):

            def run(_, flag, *__, query=query, ended=(status, "", printed), **___):
                return (
                    subprocess.CompletedProcess([], 0, query, "")
                    if flag == "-q"
                    else subprocess.CompletedProcess([], *ended)
                )

            monkeypatch.setattr(board_settings, "run", run)
            with pytest.raises(SettingError) as refusal:
                board_settings.set_power_mode("0")
            assert words in str(refusal.value)


@pytest.mark.services
def test_a_command_is_run_to_its_end(tmp_path, monkeypatch):
    """The output and the exit status are returned.

    A missing command and one that takes too long are errors.
    """
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "odd").write_text("#!/bin/sh\necho out; echo err >&2; kill -9 $$\n")
    (tmp_path / "odd").chmod(0o755)
    ended = board_settings.run("odd")
    assert (ended.returncode, ended.stdout, ended.stderr) == (-9, "out\n", "err\n")
    with pytest.raises(SettingError, match=r"cannot run `none-such`: .*No such file"):
        board_settings.run("none-such")
    with pytest.raises(SettingError, match="timed out"):
        board_settings.run("sleep", "60", timeout_s=0.1)


def test_a_file_of_the_kernel_is_written_and_never_made(tmp_path):
    """A file that does not exist is no setting."""
    with pytest.raises(SettingError, match="No such file"):
        board_settings.write(tmp_path / "scaling_governor", "performance")
    assert list(tmp_path.iterdir()) == []
