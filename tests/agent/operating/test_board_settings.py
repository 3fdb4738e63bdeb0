"""The module that `fleet apply` sends to devices: power modes and governors with the standard library alone."""

import ast
import sys
from pathlib import Path

import pytest

from edgemeter.agent.operating import board_settings
from edgemeter.agent.operating.board_settings import PowerMode, SettingError
from tests.fixtures.settable_board import CONF


def test_it_imports_the_standard_library_only():
    """A device has a bare Python."""
    tree = ast.parse(Path(board_settings.__file__).read_text())
    imported = {name.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names


def test_modes_are_read_with_the_parts_that_they_switch_off(tmp_path):
    """In the order of nvpmodel.conf; a file that is not there has none."""
    (tmp_path / "conf").write_text(CONF)
    modes = board_settings.power_modes(tmp_path / "conf")
    assert [(mode.number, mode.name) for mode in modes] == [("0", "15W"), ("1", "25W"), ("2", "MAXN_SUPER"), ("3", "7W")]
    assert modes[3].gates == ("TPC_POWER_GATING TPC_PG_MASK 252",)
    assert board_settings.power_modes(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("script", "words"),
    [
        # In a container it notes the mode, and changes nothing.
        ('[ "$1" = -q ] && printf "NV Power Mode: 15W\\n0\\n" || echo "Running in chroot, ignoring request"', "outside of a container"),
        ('[ "$1" = -q ] && printf "NV Power Mode: 25W\\n1\\n" || echo "Reboot required for changing to this power mode: 0"', "at a boot"),
        (
            '[ "$1" = -q ] && printf "NV Power Mode: 25W\\n1\\n" || echo "NVPM ERROR: Error opening status: 13" >&2',
            "Error opening status: 13",
        ),
        ("exit 1", "does not set power mode '15W': it ended with status 1"),
        ("kill -9 $$", "does not set power mode '15W': it was ended by signal 9"),
        ('[ "$1" = -q ] && exit 1 || exit 0', "`nvpmodel -q` failed: no message"),
        ('[ "$1" = -q ] && printf "NV Power Mode: 25W\\n1\\n" || echo set >&2', "does not set power mode '15W', and reports '25W': set"),
        # Where it says nothing and does nothing, it waits for a boot.
        ('[ "$1" = -q ] && printf "NV Power Mode: 25W\\n1\\n" || exit 0', "at a boot"),
        ("echo nothing", "nvpmodel reports no power mode: nothing"),
    ],
)
def test_a_mode_that_does_not_change_is_one_line(tmp_path, monkeypatch, script, words):
    """With what nvpmodel printed last, or what to do."""
    (tmp_path / "nvpmodel").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvpmodel").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(SettingError) as refusal:
        board_settings.set_power_mode(PowerMode("0", "15W"))
    assert words in str(refusal.value)
    # Only where that is why.
    assert ("run it as root" in str(refusal.value), "answer yes" in str(refusal.value)) == (False, words == "at a boot")


def test_a_file_of_the_kernel_is_written_and_never_made(tmp_path):
    """What is not there is no setting."""
    with pytest.raises(SettingError, match="No such file"):
        board_settings.write(tmp_path / "scaling_governor", "performance")
    assert list(tmp_path.iterdir()) == []
