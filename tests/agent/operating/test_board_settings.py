"""The module that `fleet apply` sends to devices: power modes and governors with the standard library alone."""

import ast
import itertools
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from edgemeter.agent.operating import board_settings
from edgemeter.agent.operating.board_settings import PowerMode, SettingError
from tests.fixtures.rows import table_row
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


SET_25W = "NV Power Mode: 25W\n1\n"
SET_15W = "NV Power Mode: 15W\n0\n"


def test_a_mode_that_does_not_change_is_refused(monkeypatch):
    """With what nvpmodel printed last, or what to do."""
    for query, status, printed, words in [
        # In a container it notes the mode, and changes nothing.
        (SET_15W, 0, "Running in chroot, ignoring request", "outside of a container"),
        (SET_25W, 0, "Reboot required for changing to this power mode: 0", "at a boot"),
        (SET_25W, 1, "", "it ended with status 1"),
        (SET_25W, 0, "set", "and reports '25W'"),
        # Where it says nothing and does nothing, it waits for a boot.
        (SET_25W, 0, "", "at a boot"),
        ("nothing", 0, "", "reports no power mode"),
    ]:
        with table_row(query, status, printed):

            def run(_, flag, *__, query=query, ended=(status, "", printed), **___):
                return subprocess.CompletedProcess([], 0, query, "") if flag == "-q" else subprocess.CompletedProcess([], *ended)

            monkeypatch.setattr(board_settings, "run", run)
            with pytest.raises(SettingError) as refusal:
                board_settings.set_power_mode(PowerMode("0", "15W"), itertools.count().__next__, lambda _: None)
            assert words in str(refusal.value)
            # Only where that is why.
            assert ("answer yes" in str(refusal.value)) == (words == "at a boot")


def test_a_mode_that_is_reported_late_is_waited_for(monkeypatch):
    """For a second, ten times; what is reported after it was not set."""
    for late, is_set in ((9, True), (11, False)):
        queries = iter([SET_25W] * late + [SET_15W])
        monkeypatch.setattr(
            board_settings,
            "run",
            lambda _, flag, *__, queries=queries, **___: subprocess.CompletedProcess([], 0, next(queries) if flag == "-q" else "set", ""),
        )
        slept_s = []
        with nullcontext() if is_set else pytest.raises(SettingError, match="reports '25W'"):
            board_settings.set_power_mode(PowerMode("0", "15W"), lambda slept_s=slept_s: round(sum(slept_s), 6), slept_s.append)
        assert len(slept_s) == min(late, 10)


@pytest.mark.services
def test_a_command_is_run_to_its_end(tmp_path, monkeypatch):
    """What it printed and how it ended; a command that is not there is an error, and so is one that takes too long."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "odd").write_text("#!/bin/sh\necho out; echo err >&2; kill -9 $$\n")
    (tmp_path / "odd").chmod(0o755)
    ended = board_settings.run("odd")
    assert (ended.returncode, ended.stdout, ended.stderr) == (-9, "out\n", "err\n")
    with pytest.raises(SettingError, match="there is no 'none-such'"):
        board_settings.run("none-such")
    with pytest.raises(SettingError, match="did not end within"):
        board_settings.run("sleep", "60", timeout_s=0.1)


def test_a_file_of_the_kernel_is_written_and_never_made(tmp_path):
    """What is not there is no setting."""
    with pytest.raises(SettingError, match="No such file"):
        board_settings.write(tmp_path / "scaling_governor", "performance")
    assert list(tmp_path.iterdir()) == []
