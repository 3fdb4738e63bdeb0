"""Facts about `power_mode` and `governor` of a suite.

Whole sessions run on an imitation of a Jetson, in processes of their own.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.replay_case import write_replay
from tests.fixtures.settable_board import SettableBoard

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def board(tmp_path):
    write_replay(tmp_path)
    return SettableBoard(tmp_path)


def start(board, setting, *arguments):
    """Start `edgemeter run` of a suite with the model and this setting of the board.

    It runs in the quick mode where that is possible.
    """
    suite = board.root.parent / "suite.toml"
    suite.write_text(f'name = "s"\n[[case]]\nmodel = "m.replay.json"\n{setting}\n')
    command = [
        sys.executable,
        "-m",
        "tests.fixtures.settable_board",
        str(board.root),
        "run",
        str(suite),
    ]
    options = ("--mode", "rapid", "--power", "none", "--device", "orin", *arguments)
    environment = board.environment | {"EDGEMETER_RUN_LOCK": str(board.home / "run.lock")}
    return subprocess.Popen(
        [*command, *options],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.services
def test_a_sweep_has_a_record_of_each_mode_an_answer_and_the_board_as_it_was(board):
    """The power mode in a record's environment is that of its run.

    The document has the table of the modes.
    """
    before = board.settings()
    with start(
        board, 'power_mode = ["15W", "25W"]', "--repeats", "1", "--format", "json"
    ) as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    document = json.loads(out)
    modes = {
        (run["environment"]["power_mode"], run["operating_point"]["power_mode"])
        for run in document["runs"]
    }
    assert modes == {("0 15W", "15W"), ("1 25W", "25W")}
    (answer,) = document["answer"]
    assert sorted(answer["modes"]) == ["15W", "25W"]
    assert "fastest" in {mark for marks in answer["modes"].values() for mark in marks}
    assert (board.settings(), board.record.exists()) == (before, False)


@pytest.mark.services
def test_a_setting_that_the_board_cannot_take_is_one_line_and_changes_nothing(board):
    """The error comes before the first run and before anything is written."""
    before = board.settings()
    for setting, words in (
        ('power_mode = ["15W", "99W"]', "'99W'"),
        ('governor = "warp"', "'warp'"),
    ):
        with start(board, setting) as process:
            out, err = process.communicate()
        assert process.returncode in (1, 2)
        assert (out, len(err.splitlines())) == ("", 1)
        assert words in err
        assert (board.settings(), board.record.exists()) == (before, False)


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_puts_the_board_back_and_keeps_what_was_measured(board, number):
    """The signals are Ctrl-C, a service manager's stop, and a terminal that is closed.

    The table of the runs before the signal is printed.
    """
    before = board.settings()
    with start(
        board, 'governor = ["powersave", "performance"]', "--repeats", "1", "--seconds", "5"
    ) as process:
        lines = iter(process.stderr.readline, "")
        # The first case has ended; the board has its own settings until the second begins.
        assert any(line.startswith("[1/2] ") for line in lines)
        assert wait_until(lambda: board.settings() != before)
        process.send_signal(number)
        out, _ = process.communicate()
    assert "1 run, " in out
    assert (board.settings(), board.record.exists()) == (before, False)
