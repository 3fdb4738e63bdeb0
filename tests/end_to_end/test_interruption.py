"""Facts about `edgemeter run` when somebody ends it early.

Runs that were measured are printed, written and kept.
"""

import json
import os
import signal
import subprocess

import pytest

from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.replay_case import replay_model
from tests.fixtures.servers import free_port
from tests.fixtures.small_disk import small_disk
from tools.chaos.interrupts import interrupt


def start(folder, *arguments):
    """Start `edgemeter run` on a replay model, in a process group of its own as a shell would."""
    options = (
        replay_model(folder),
        "--mode",
        "rapid",
        "--power",
        "none",
        "--format",
        "json",
        "--bundle",
        folder / "bundles",
        *arguments,
    )
    environment = {**os.environ, "EDGEMETER_HOME": str(folder / "home")}
    command = [*EDGEMETER, "run", *map(str, options)]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_runs(folder, count):
    assert wait_until(lambda: len(list((folder / "bundles").glob("*.edgemeter"))) >= count, 60)


@pytest.mark.services
def test_what_was_measured_before_ctrl_c_is_printed_written_and_kept(tmp_path):
    """Without a broker no run that ended is lost by Ctrl-C, which reaches the whole group."""
    nobody = f"127.0.0.1:{free_port()}"
    document = tmp_path / "out.json"
    run = start(
        tmp_path,
        "--repeats",
        60,
        "--broker",
        nobody,
        "--if-no-broker",
        "keep",
        "--output",
        document,
        "--delivery-timeout",
        1,
    )
    try:
        wait_for_runs(tmp_path, 2)
        os.killpg(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=150)
    finally:
        run.kill()
    printed = json.loads(out)["runs"]
    assert 2 <= len(printed) < 60
    assert run.returncode == 130
    assert "Traceback" not in err
    assert json.loads(document.read_text())["runs"] == printed
    assert len(list((tmp_path / "bundles").glob("*.edgemeter"))) == len(printed)
    with Outbox(tmp_path / "home" / "outbox.sqlite") as outbox:
        assert outbox.count() == len(printed)
    with SqliteLedger(tmp_path / "home" / "ledger.sqlite", "read") as ledger:
        assert [run.record.id for run in ledger.records()] == [run["id"] for run in printed]


@pytest.mark.services
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "words", [("run",), ("compare", "--matters", "1%")], ids=lambda words: words[0]
)
def test_an_interrupt_at_any_moment_leaves_nothing(tmp_path, words, number):
    """No process, no temporary folder and no traceback is left.

    `python -m tools.chaos.interrupts` does it a thousand times.
    """
    (tmp_path / "b").mkdir()
    models = [replay_model(tmp_path), replay_model(tmp_path / "b")][: 1 + (words[0] == "compare")]
    for index in range(5):
        command = [
            *words,
            *map(str, models),
            "--mode",
            "rapid",
            "--repeats",
            "60",
            "--power",
            "none",
        ]
        ended = interrupt(command, tmp_path / f"home-{index}", number, 2.0)
        assert ended.faults(number, end_s=20.0) == []


@pytest.mark.nightly
def test_a_run_that_finds_the_disk_full_is_printed_all_the_same(tmp_path):
    """A full disk keeps the run out of the outbox, with an error, but its figures are printed."""
    with small_disk(tmp_path / "home", 1) as disk:
        Outbox(disk / "outbox.sqlite").close()
        run = start(
            tmp_path,
            "--repeats",
            3,
            "--broker",
            f"127.0.0.1:{free_port()}",
            "--if-no-broker",
            "keep",
            "--delivery-timeout",
            0,
        )
        try:
            wait_for_runs(tmp_path, 1)
            with (disk / "filler").open("wb", buffering=0) as filler:
                try:
                    while filler.write(bytes(4096)):
                        pass
                except OSError:
                    pass
            out, err = run.communicate(timeout=300)
        finally:
            run.kill()
    assert len(json.loads(out)["runs"]) == 3
    assert run.returncode == 1
    assert "the disk is full" in err
    assert "Traceback" not in err
