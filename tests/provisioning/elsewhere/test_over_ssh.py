"""A board over a real sshd, measured by the real edgemeter in a release that is made here."""

import re

import pytest

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.order_suite import SHIPPED
from edgemeter.provisioning.elsewhere import over_ssh
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from tests.fixtures import device_release
from tests.fixtures.replay_case import write_replay
from tests.provisioning.elsewhere.board_bench import IS_ROOT, until

pytestmark = [pytest.mark.system_python, pytest.mark.needs("openssl", "ssh", "sshd")]


def measured(board, workstation, packed, report=None, **options):
    """Measure on the board, and return its runs."""
    options = {**workstation.options, "ssh": board.server.options(), **options}
    return over_ssh.measure(board.target, packed, workstation.store, options, report or workstation.lines.append)


@pytest.mark.usefixtures("index")
@pytest.mark.needs(module="ai_edge_litert")
def test_a_board_without_a_fleet_is_measured_and_nothing_stays_there(board, workstation):
    """A release of what is installed here, with the runtime that the model needs; one that stays there is not sent again."""
    packed = workstation.pack(SHIPPED / "edgemeter-shapes_int8.tflite", mode="quick", repeats=1)
    runs = measured(board, workstation, packed, keep_there=True)
    (record,) = runs.records
    assert (runs.errors, runs.interruption) == ([], None)
    assert (record.device, record.runtime.name) == (config.this_device(), "litert")
    assert record.latency.p50_ms > 0
    assert record.verdict.state in {"ok", "disturbed"}
    assert any("[1/1] edgemeter-shapes_int8.tflite litert" in line for line in workstation.lines), workstation.lines
    assert any("no energy" in line for line in workstation.lines) == (record.energy is None)
    assert all(line.startswith(f"{board.target.name}: ") for line in workstation.lines)
    (folder,) = (board.home / ".cache/edgemeter").iterdir()
    assert re.fullmatch("on-.{8}", folder.name)
    assert {path.name for path in folder.iterdir()} == {"release.sha256", "root", "suite", "errors"}
    assert f"the release stays in {folder}" in workstation.lines[-2] + workstation.lines[-1]

    begun = len(workstation.lines)
    with board.run_lock_held() as end_other:

        def report(line):
            workstation.lines.append(line)
            if "is in progress: waiting" in line:
                end_other()

        (second_record,) = measured(board, workstation, packed, report).records
    assert any("is in progress: waiting" in line for line in workstation.lines[begun:]) == IS_ROOT
    assert second_record.id != record.id
    assert not [line for line in workstation.lines[begun:] if "collecting wheels" in line or "installing" in line]
    assert any("copying 0.0 MB" in line for line in workstation.lines[begun:])
    assert board.is_as_before()


@pytest.mark.usefixtures("index")
def test_two_models_are_measured_in_rounds_on_the_board(board, workstation, tmp_path):
    """The runs of a round are pairs when they come home."""
    models = [write_replay(tmp_path, name, latencies_ms=[latency_ms]) for name, latency_ms in (("a", 2.0), ("b", 3.0))]
    runs = measured(board, workstation, workstation.pack(*models, mode="rapid"), power="none")
    assert len({run.session_started_at_ns for run in runs.records} - {0}) == 1
    assert [(run.model.name, run.repeat) for run in runs.records[:4]] == [
        ("a.replay", 0),
        ("b.replay", 0),
        ("b.replay", 1),
        ("a.replay", 1),
    ]
    assert board.is_as_before()


@pytest.mark.usefixtures("index")
def test_ctrl_c_keeps_the_run_that_had_ended_and_nothing_stays_on_the_board(board, workstation, tmp_path):
    """In the middle of the second case of two."""
    packed = workstation.pack(write_replay(tmp_path), seconds=5.0, repeats=1, threads=[1, 2])
    interrupted = []

    def report(line):
        if "[1/2]" in line and not interrupted:
            interrupted.append(line)
            raise KeyboardInterrupt

    runs = measured(board, workstation, packed, report, power="none")
    assert (len(runs.records), type(runs.interruption)) == (1, KeyboardInterrupt)
    until(board.is_as_before)


def test_a_run_that_fails_there_is_the_error_here(board, workstation, tmp_path):
    """A model whose runtime is not in the release: one line, by the board's name, and nothing stays."""
    release = device_release.make(tmp_path / "release", FleetFolder(tmp_path / "fleet"))
    packed = workstation.pack(write_replay(tmp_path))
    with pytest.raises(ConfigError, match="edgemeter ended with status 2"):
        measured(board, workstation, packed, release=release)
    assert board.is_as_before()
