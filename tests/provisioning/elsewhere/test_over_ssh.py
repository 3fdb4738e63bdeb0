"""A board over a real sshd, measured by the real edgemeter in a release that is made here."""

import os
import subprocess
import sys
import threading
from dataclasses import replace

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.order_suite import SHIPPED
from edgemeter.models.catalogue.shipped_models import write_sample
from edgemeter.provisioning.apply import bring
from edgemeter.provisioning.apply.facts import BoardFacts, Interpreter
from edgemeter.provisioning.elsewhere import over_ssh
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from tests.fixtures import device_release, small_release
from tests.fixtures.command import edgemeter
from tests.fixtures.replay_case import write_replay
from tests.fixtures.rows import table_row
from tests.provisioning.elsewhere.board_bench import IS_ROOT, until

on_board = pytest.mark.needs("openssl", "ssh", "sshd")


@on_board
@pytest.mark.system_python
@pytest.mark.usefixtures("index")
@pytest.mark.needs(module="ai_edge_litert")
def test_a_run_over_ssh_has_the_record_of_a_local_run_and_leaves_the_release_only(
    board, workstation, tmp_path
):
    """A run over ssh has the record of a local run, and leaves only the release on the board.

    The release is made of the packages installed here, with the runtime that the model needs;
    photographs and annotations travel with the suite.

    The next run copies only the suite, and waits for another measurement on the board, as any run
    does.
    """
    write_sample(tmp_path / "sample")
    model = SHIPPED / "edgemeter-shapes_int8.tflite"
    data = {
        "data": str(tmp_path / "sample/photos"),
        "annotations": str(tmp_path / "sample/instances.json"),
    }
    runs = workstation.measure(model, mode="quick", repeats=1, **data)
    (record,) = runs.records
    assert (runs.errors, runs.interruption) == ([], None)
    assert record.verdict.state in {"ok", "disturbed"}
    assert any("[1/1] edgemeter-shapes_int8.tflite litert" in line for line in workstation.lines), (
        workstation.lines
    )
    assert any("no energy" in line for line in workstation.lines) == (record.energy is None)
    assert all(line.startswith(f"{board.target.name}: ") for line in workstation.lines)
    (release,) = (board.cache / "releases").iterdir()
    assert any(f"the release stays in {release}" in line for line in workstation.lines)
    assert board.has_only_the_release()

    options = ["--mode", "quick", "--repeats", "1", "--no-save", "--format", "json"]
    command = ["run", model, "--data", data["data"], "--annotations", data["annotations"], *options]
    ended = edgemeter(
        *map(str, command),
        env={**os.environ, "EDGEMETER_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    (local,) = msgspec.json.decode(ended.stdout, type=over_ssh._BoardDocument).runs
    assert record.case == local.case
    for part in ("device", "model", "runtime", "dataset", "accuracy"):
        assert getattr(record, part) == getattr(local, part), part

    begun = len(workstation.lines)
    with board.run_lock_held() as end_other:

        def report(line):
            workstation.lines.append(line)
            if "is in progress: waiting" in line:
                end_other()

        (second_record,) = workstation.measure(
            model, report=report, mode="quick", repeats=1, **data
        ).records
    assert any("is in progress: waiting" in line for line in workstation.lines[begun:]) == IS_ROOT
    assert second_record.id != record.id
    assert not [
        line
        for line in workstation.lines[begun:]
        if "collecting wheels" in line or "installing" in line
    ]
    assert board.has_only_the_release()


@on_board
@pytest.mark.system_python
@pytest.mark.usefixtures("index")
def test_two_models_are_measured_in_rounds_on_the_board(board, workstation, tmp_path):
    """Two models that are measured in rounds on the board come home as pairs of runs."""
    models = [
        write_replay(tmp_path, name, latencies_ms=[latency_ms])
        for name, latency_ms in (("a", 2.0), ("b", 3.0))
    ]
    runs = workstation.measure(*models, mode="rapid", power="none")
    assert len({run.session_started_at_ns for run in runs.records} - {0}) == 1
    assert [(run.model.name, run.repeat) for run in runs.records[:4]] == [
        ("a.replay", 0),
        ("b.replay", 0),
        ("b.replay", 1),
        ("a.replay", 1),
    ]
    assert board.has_only_the_release()


@on_board
@pytest.mark.system_python
@pytest.mark.usefixtures("index")
def test_ctrl_c_keeps_the_run_that_had_ended_and_ends_the_other_on_the_board(
    board, workstation, tmp_path
):
    """Ctrl-C in the second of two cases keeps the first run and ends the second on the board."""
    interrupted = []

    def report(line):
        if "[1/2]" in line and not interrupted:
            interrupted.append(line)
            raise KeyboardInterrupt

    runs = workstation.measure(
        write_replay(tmp_path), report=report, seconds=5.0, repeats=1, threads=[1, 2], power="none"
    )
    assert (len(runs.records), type(runs.interruption)) == (1, KeyboardInterrupt)
    until(board.has_only_the_release)


@on_board
@pytest.mark.system_python
@pytest.mark.usefixtures("index")
def test_a_lost_connection_ends_what_runs_there_and_a_killed_program_leaves_its_folder_to_the_next(
    board, workstation, tmp_path
):
    """A lost connection ends the program on the board, because its input ends.

    The folder of a killed program is locked by nobody, so that the next run removes it.
    """
    model = write_replay(tmp_path)

    def lose():
        until(
            lambda: any("bin/edgemeter run suite" in words for words in board.processes().values()),
            200.0,
        )
        board.lose_connections()

    loser = threading.Thread(target=lose)
    loser.start()
    with pytest.raises(
        TransientError, match="the connection was lost during a run: the run there ends"
    ):
        workstation.measure(model, seconds=100.0, repeats=1, power="none")
    loser.join()
    until(board.has_only_the_release)
    (board.cache / "run-abcdefgh/suite").mkdir(parents=True)
    assert len(workstation.measure(model, mode="rapid", repeats=1, power="none").records) == 1
    assert any("removed what a lost connection left there" in line for line in workstation.lines)
    assert board.has_only_the_release()


@on_board
@pytest.mark.system_python
@pytest.mark.usefixtures("index")
def test_a_run_that_fails_there_is_the_error_here(board, workstation, tmp_path):
    """An agent that cannot measure is one line with the board's name, and its folder is removed."""
    this_version = over_ssh.metadata.version("edgemeter").partition("+")[0]
    for version, kind, message in (
        (f"{this_version}+1", UnavailableError, "No module named 'edgemeter"),
        ("0.0.9", ConfigError, "is not of this"),
    ):
        release = device_release.make(tmp_path / version, FleetFolder(tmp_path / "fleet"), version)
        with pytest.raises(kind, match=message):
            workstation.measure(write_replay(tmp_path), release=release)
    assert board.has_only_the_release()


@pytest.mark.services
def test_a_silent_connection_counts_as_lost(tmp_path):
    """A program on the board ends when it hears no sign of life.

    A network that drops all packets closes no connection.
    """
    program = over_ssh.PROGRAM.read_text().replace(
        "SILENCE_S, INTERRUPT_S = 45.0, 20.0", "SILENCE_S, INTERRUPT_S = 1.0, 20.0"
    )
    (tmp_path / ".cache/edgemeter").mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"HOME": str(tmp_path)},
    ) as process:
        assert process.wait(60) == 1
        assert b"edgemeter: " in process.stderr.read()
    assert list((tmp_path / ".cache/edgemeter").iterdir()) == []


def test_what_cannot_be_measured_over_ssh_is_refused_in_one_line(tmp_path):
    """Requests that ssh cannot serve are refused in one line before any board is asked.

    For devices of the fleet, the line names the command to use.
    """
    for name in ("a", "b"):
        write_replay(tmp_path, name)
    (tmp_path / "f.py").write_text("def make(): ...\n")
    run, compare = (
        ("run", "a.replay.json", "--on", "ssh://pi"),
        ("compare", "a.replay.json", "b.replay.json"),
    )
    for words, reason in (
        (("run", "a.replay.json", "--on", "pi-3"), "`edgemeter fleet run SUITE --on pi-3`"),
        (
            (*compare, "--on", "board=pi5 & coral"),
            "`edgemeter fleet run SUITE --on 'board=pi5 & coral'`",
        ),
        ((*run, "--on", "ssh://-oProxyCommand=x"), "is not the address of a board"),
        (("run", "absent.replay.json", "--on", "ssh://pi"), "absent.replay.json"),
        ((*run, "--device", "pi"), "--device is for measurements on this machine"),
        ((*run, "--option", "k=v"), "options are library settings"),
        (("run", "f.py:make", "--on", "ssh://pi"), "is code, which no order carries"),
        ((*run, "--data", "none"), "no folder of images at"),
        (("compare", "a.replay.json", "a.replay.json", "--on", "ssh://pi"), "none of them twice"),
        (("run", "a.replay.json", "--release", "pi5.tar"), "--release needs --on"),
        ((*compare, "--release", "pi5.tar"), "--release needs --on"),
    ):
        with table_row(words):
            completed = edgemeter(
                *words, env={**os.environ, "EDGEMETER_HOME": str(tmp_path / "home")}, cwd=tmp_path
            )
            skipped = ("Usage", "Try", "measuring 1 case")
            errors = [
                line for line in completed.stderr.splitlines() if not line.startswith(skipped)
            ]
            assert (completed.returncode in {1, 2}, len(errors), completed.stdout) == (
                True,
                1,
                "",
            ), completed.stderr
            assert reason in errors[0]


TARGET = small_release.this_target()
PYTHON = Interpreter(TARGET.python_text, "/usr/bin/python3")
BOARD = BoardFacts(
    arch=TARGET.arch, system="Debian", model="Raspberry Pi 5 Model B Rev 1.0", pythons=(PYTHON,),
    glibc=TARGET.glibc, rights="none",
    has_openssl=False, home="/home/pi", root="/home/pi/.cache/edgemeter", free_bytes=0,
    current=None, releases={},
)  # fmt: skip


@pytest.mark.services
@pytest.mark.usefixtures("index")
def test_a_board_of_another_kind_gets_the_wheels_of_its_own():
    """Wheels of this machine are not sent to a board of another kind.

    The message says what to get.
    """
    other = replace(BOARD, arch="aarch64" if TARGET.arch == "x86_64" else "x86_64")
    with pytest.raises(
        ConfigError, match=f"no wheels for .*{other.arch}, Python {TARGET.python_text}"
    ):
        bring.made_release(other, PYTHON, (), print)


def test_a_release_has_the_extras_of_the_runtimes_only(tmp_path):
    """A release contains only the extras of its runtimes, to spare a small board on a slow line."""
    write_replay(tmp_path)
    for case, extras in (
        (Settings(model="m.tflite"), ("litert",)),
        (Settings(model="m_edgetpu.tflite", runtime="edgetpu"), ("coral",)),
        (Settings(model="m.onnx", runtime=["onnx", "openvino"]), ("onnx", "openvino")),
        (Settings(model="m.gguf"), ("llama",)),
        (Settings(model="m.replay.json"), ()),
        (Settings(model="m.tflite", data="0a-a.MP4.zip"), ("litert", "video")),
    ):
        # A package installed before an extra was added does not offer it.
        offered = over_ssh.metadata.metadata("edgemeter").get_all("Provides-Extra")
        assert over_ssh.extras_of([case], tmp_path) == tuple(
            extra for extra in extras if extra in offered
        ), case
