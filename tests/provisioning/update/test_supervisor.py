"""Tests of the supervisor as a process.

Whatever happens on the way, one release works in the end, and it is known which.
"""

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import time

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.orders import Content, Update
from edgemeter.agent.update import order
from edgemeter.agent.update.release import InstalledRelease
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.small_disk import fill, small_disk
from tests.fixtures.update_board import (
    BROKEN,
    CRASHES,
    LONG_S,
    NO_BROKER,
    QUICK_INSTALLER,
    SILENT,
    copied,
)

pytestmark = pytest.mark.needs("openssl")
# At length: EDGEMETER_UPDATES=9.
UPDATES, KILLS = int(os.environ.get("EDGEMETER_UPDATES", "3")), 4


def locked(board):
    lock = (board.home / "run.lock").open("a")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def test_a_good_release_is_gone_to_and_two_are_kept(board):
    """After updates from 1.0 to 2.0 and 3.0 the board runs 3.0 and keeps 2.0 to go back to."""
    board.start()
    assert board.runs("1.0")
    for version in ("2.0", "3.0"):
        board.want(board.release(version), version, job=f"to-{version[0]}")
        outcome = board.outcome(f"to-{version[0]}")
        assert (outcome["state"], outcome["version"]) == ("done", version), board.log()
        assert board.runs(version)
    assert board.releases() == ["2.0", "3.0"]
    assert wait_until(lambda: board.step()[0] is None)
    assert not (board.root / ".incoming").exists()


def test_a_bad_release_is_rolled_back_and_not_tried_again(board):
    """A bad release is rolled back, and the agent refuses it until it is allowed.

    The version is known as bad, and the disk is as it was before.
    """
    board.start()
    release = board.release("2.0", CRASHES)
    board.want(release, "2.0")
    outcome = board.outcome()
    assert outcome["state"] == "failed"
    assert "rolled back to 1.0, because" in outcome["reason"]
    assert "started 3 times and ended each time" in outcome["reason"]
    assert board.runs("1.0")
    assert board.releases() == ["1.0"]
    assert board.said("bad")["2.0"]["is_bad"] is True
    assert not (board.root / ".incoming").exists()
    repeated = Update(version="2.0", bundle=Content(sha256="a" * 64, size_bytes=1, name="2.0.tar"))
    with pytest.raises(ConfigError, match="failed here before"):
        order.check(repeated, InstalledRelease(board.root, "1.0"))
    order.check(
        msgspec.structs.replace(repeated, even_if=("bad",)), InstalledRelease(board.root, "1.0")
    )
    board.want(board.release("2.0"), "2.0", job="told")
    assert board.outcome("told")["state"] == "done"
    assert board.runs("2.0")
    assert board.said("bad") == {}


@pytest.mark.nightly
def test_whatever_is_wrong_with_a_release_it_is_rolled_back(board):
    """A release that reports a fault, or reports nothing, is rolled back."""
    board.options = {"healthy-within-s": 6}
    board.start()
    for number, (agent, why) in enumerate(
        (
            (BROKEN, "onnxruntime does not import"),
            (SILENT, "it never reported its health"),
        ),
        2,
    ):
        with table_row(agent):
            board.want(board.release(f"{number}.0", agent), f"{number}.0", job=f"to-{number}")
            assert why in board.outcome(f"to-{number}")["reason"]
            assert board.runs("1.0")
            assert board.releases() == ["1.0"]


@pytest.mark.nightly
def test_a_broker_that_is_away_is_held_against_a_release_the_second_time(board):
    """A release that finds no broker is rolled back, and is bad only the second time.

    The broker may be down for the release before, too.
    """
    board.options = {"healthy-within-s": 2}
    board.start()
    release = board.release("2.0", NO_BROKER)
    for number, is_bad in ((1, False), (2, True)):
        board.want(release, "2.0", job=f"try-{number}")
        assert "no session with the broker" in board.outcome(f"try-{number}")["reason"]
        assert (board.said("bad")["2.0"]["attempts"], board.said("bad")["2.0"]["is_bad"]) == (
            number,
            is_bad,
        )
    assert board.runs("1.0")


def test_a_release_that_was_changed_is_refused(board):
    """A changed release is refused.

    One byte of the manifest, of its signature or of a wheel differs, or the version is another than
    the one ordered.
    """
    board.start()
    for job, changes, why in (
        ("manifest", {"change": "manifest.json"}, "is not signed by"),
        ("wheel", {"change": "wheels/edgemeter"}, "wheels/edgemeter"),
        ("version", {"manifest_version": "9.9"}, "has version '9.9', but the request is for '2.0'"),
    ):
        with table_row(job):
            board.want(board.release("2.0", **changes), "2.0", job=job)
            outcome = board.outcome(job)
            assert outcome["state"] == "failed"
            assert why in outcome["reason"]
            assert "rolled back" not in outcome["reason"]
            assert board.runs("1.0")
            assert board.releases() == ["1.0"]


@pytest.mark.nightly
def test_an_update_request_with_anything_else_in_it_is_refused(board):
    """An update request with a path, an unknown field or a wrong type is refused."""
    board.start()
    release = board.release("2.0")
    for number, (field, value) in enumerate(
        (
            ("sha256", "../../../etc/passwd"),
            ("command", "reboot"),
            ("attempt", 0),
            ("even_if", "root"),
            ("size_bytes", -1),
        )
    ):
        with table_row(field, value):
            board.want(release, **{"version": "2.0", "job": f"update-{number}", field: value})
            outcome = board.outcome(f"update-{number}")
            assert outcome["state"] == "failed"
            assert field in outcome["reason"]


def test_a_request_from_before_the_first_start_is_not_granted(board):
    """A request from before the first start belongs to an earlier installation and is refused.

    Only its home stayed; the next request is granted.
    """
    (board.root / "supervisor" / "journal.json").unlink()
    board.want(board.release("2.0"), "2.0")
    board.start()
    assert wait_until(lambda: board.journal().get("request"))
    board.want(board.release("3.0"), "3.0", job="next")
    assert board.outcome("next")["state"] == "done"
    assert board.releases() == ["1.0", "3.0"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "content", [b"\xff" * 70_000, b"[" * 50_000, b'{"job": 1e999, "attempt": NaN}']
)
def test_garbage_is_thrown_away_and_the_next_request_is_granted(board, content):
    """Garbage in any file that the agent may write is removed, and the next request is granted."""
    for name in ("wanted.json", "healthy.json", "withdrawn.json", "reboot"):
        (board.home / "update" / name).write_bytes(content)
    board.start()
    assert wait_until(lambda: board.journal().get("request"))
    board.want(board.release("2.0"), "2.0")
    assert board.outcome()["state"] == "done", board.log()


@pytest.mark.nightly
def test_a_link_or_a_pipe_in_place_of_a_file_harms_nothing(board, tmp_path):
    """A link or a pipe in place of a file is not followed, as the agent has fewer rights."""
    secret = tmp_path / "secret"
    secret.write_text('{"job": "update-1", "attempt": 1}')
    (board.home / "update" / "withdrawn.json").symlink_to(secret)
    os.mkfifo(board.home / "update" / "healthy.json")
    (board.home / "update" / "reboot").mkdir()
    board.start()
    release = board.release("2.0")
    board.want(release, "2.0")
    assert board.outcome()["state"] == "done"
    board.want(release, "3.0", job="linked")
    content = (
        board.home
        / "content"
        / json.loads((board.home / "update" / "wanted.json").read_text())["sha256"]
    )
    content.rename(tmp_path / "elsewhere")
    content.symlink_to(tmp_path / "elsewhere")
    assert "not a plain file" in board.outcome("linked")["reason"]


def test_it_waits_for_the_end_of_a_measurement(board):
    """Nothing is installed or switched until the measurement ends and releases the lock."""
    board.start()
    lock = locked(board)
    board.want(board.release("2.0"), "2.0")
    assert wait_until((board.root / "supervisor" / "journal.json").exists)
    assert board.releases() == ["1.0"]
    assert board.said("outcome") == {}
    lock.close()
    assert board.outcome()["state"] == "done"


@pytest.mark.nightly
def test_a_measurement_that_does_not_end_blocks_the_update(board):
    """An update that a measurement blocks past the deadline is reported, and is not bad."""
    board.start()
    with locked(board):
        board.want(board.release("2.0"), "2.0", timeout_s=1)
        assert board.outcome()["reason"].startswith("blocked by run")
    assert board.said("bad") == {}
    assert board.runs("1.0")


@pytest.mark.nightly
def test_no_measurement_begins_while_a_release_is_tried(board):
    """The measurement lock is held until the verdict on the new release."""
    board.start()
    board.want(board.release("2.0", SILENT), "2.0")
    assert wait_until(lambda: (board.root / "current").resolve().name == "2.0", LONG_S)
    with (board.home / "run.lock").open("a") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.nightly
def test_a_release_that_proved_itself_brings_its_supervisor(board):
    """The supervisor goes on as the new release's one after that release has proved itself.

    A release whose supervisor is no program is refused.
    """
    board.script = board.root / "proven" / "supervisor.py"
    board.start()
    board.want(
        board.release("2.0", tools={"supervisor.py": board.script.read_text() + "# newer\n"}), "2.0"
    )
    assert board.outcome()["state"] == "done"
    assert wait_until(lambda: board.script.read_text().endswith("# newer\n"))
    for name in ("supervisor.py", "install.py"):
        board.want(board.release("3.0", tools={name: "def ("}), "3.0", job=name[0])
        assert "its supervisor ended with status 1: SyntaxError" in board.outcome(name[0])["reason"]
    board.want(board.release("3.0"), "3.0", job="next")
    assert board.outcome("next")["state"] == "done", board.log()
    assert "continuing as the supervisor of release 2.0" in board.log()


@pytest.mark.nightly
def test_a_disk_that_gets_full_on_the_way_leaves_the_old_release(first, tmp_path):
    """A disk that gets full during an update leaves the old release.

    A release that is too large is not begun. If the space goes in the middle, the files that were
    written are removed, and later there is room again.
    """
    with small_disk(tmp_path / "disk", 64) as disk:
        board = copied(first, tmp_path, disk)
        board.start()
        try:
            release = board.release("2.0")
            (disk / "other").write_bytes(bytes(20 << 20))
            board.want(release, "2.0", job="large")
            assert "no space" in board.outcome("large")["reason"]
            (disk / "other").unlink()
            board.want(release, "2.0")
            assert wait_until((disk / "releases" / "2.0").exists, LONG_S)
            fill(disk / "ballast")
            outcome = board.outcome()
            assert outcome["state"] == "failed"
            assert "No space left" in outcome["reason"]
            assert board.runs("1.0")
            assert board.releases() == ["1.0"]
            assert board.said("bad") == {}
            (disk / "ballast").unlink()
            board.want(release, "2.0", job="later")
            assert board.outcome("later")["state"] == "done", board.log()
        finally:
            board.close()


@pytest.mark.nightly
def test_killed_at_any_moment_every_good_release_runs_in_the_end_and_no_bad_one(board):
    """Kills of supervisor and agent at any moment leave good releases running and no bad one.

    They are killed again and again in each update, of which every third is bad; the moments are
    printed.
    """
    seed = os.environ.get("EDGEMETER_SEED") or str(time.time_ns())
    print("EDGEMETER_SEED", seed)
    chance = random.Random(seed)  # noqa: S311 - moments, no secret
    board.start()
    runs = "1.0"
    for number in range(2, 2 + UPDATES):
        version, is_good = f"{number}.0", number % 3 != 0
        board.want(
            board.release(version) if is_good else board.release(version, BROKEN),
            version,
            job=f"update-{number}",
        )
        for _ in range(KILLS):
            time.sleep(chance.uniform(0, 2))
            print(version, board.step())
            if chance.random() < 0.3 and "pid" in (report := board.said("healthy")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(report["pid"], signal.SIGKILL)
            else:
                board.kill_supervisor()
                board.start_supervisor()
        assert board.outcome(f"update-{number}")["state"] == ("done" if is_good else "failed"), (
            board.log()
        )
        runs = version if is_good else runs
        assert board.runs(runs), board.log()
        assert runs in board.releases()
        assert len(board.releases()) <= 2
        assert wait_until(lambda: board.step()[0] is None)
    assert set(board.said("bad")) == {
        f"{number}.0" for number in range(2, 2 + UPDATES) if number % 3 == 0
    }


def interrupt(board, name, moment, path="", *, cuts_power):
    """Go to a good release through three interruptions at one step."""
    board.plan_kills(3, name, moment, path, cuts_power=cuts_power)
    board.start()
    board.want(board.release("2.0"), "2.0")
    board.restart_killed(3)
    assert board.outcome()["state"] == "done", board.log()
    assert board.runs("2.0")
    assert board.said("bad") == {}
    assert wait_until(lambda: board.step()[0] is None)


def test_a_good_release_that_is_interrupted_again_and_again_runs_in_the_end(board):
    """Three power cuts during its installation do not make a good release bad."""
    interrupt(board, "pause", "before", "releases/2.0", cuts_power=True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "moment", "cuts_power"),
    [
        ("Supervisor._make_room", "after", True),
        ("install.link", "after", False),
        ("Supervisor._why_unhealthy", "before", False),
        ("Supervisor._finish", "before", True),
    ],
)
def test_a_good_release_is_gone_to_through_interruptions_at_any_step(
    board, name, moment, cuts_power
):
    """A good release survives power cuts before the switch and after the verdict, and kills."""
    interrupt(board, name, moment, cuts_power=cuts_power)


@pytest.mark.parametrize(
    "installer",
    [QUICK_INSTALLER, pytest.param(None, marks=pytest.mark.nightly)],
    ids=["quick", "real"],
)
def test_a_power_cut_at_any_step_leaves_a_board_that_ends_the_update(first, tmp_path, installer):
    """After a power cut at any step the next boot completes the update.

    The cut comes before each sync, rename, removal and start of a program. Nothing left over is in
    the way, and no version is bad.
    """

    def steps_of(number):
        folder = tmp_path / str(number)
        folder.mkdir()
        board = copied(first, folder)
        board.options = {"settle-s": 0.2, "every-s": 0.02, "healthy-within-s": 180}
        board.plan_cut(number, installer)
        try:
            board.start()
            board.want(board.release("2.0", tools={"supervisor.py": "# another one"}), "2.0")
            if number:
                board.restart_killed(1)
                assert board.journal() is not None
                board.restart_agent()
            assert board.outcome()["state"] == "done", board.log()
            assert board.runs("2.0")
            assert (board.said("bad"), board.said("update"), board.releases()) == (
                {},
                {},
                ["1.0", "2.0"],
            )
            assert (board.root / "proven" / "supervisor.py").read_text() == "# another one"
            assert {path.name for path in board.root.glob(".*")} <= {".install.lock"}
            assert not list(board.root.rglob("*.part"))
            return board.steps()
        finally:
            board.close()

    steps = steps_of(0)
    assert len(steps) > 20
    for number, step in enumerate(steps, 1):
        with table_row(number, step):
            steps_of(number)


@pytest.mark.nightly
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupted_installation_that_is_withdrawn_is_not_resumed(board, moment):
    """An interrupted installation that is withdrawn is removed and not resumed.

    It is withdrawn while it rests, or at the next start. Nothing of it stays, the version is not
    bad, and it can be requested again.
    """
    board.options = {"first-pause-s": 1000}
    board.plan_kills(1, "Supervisor._build", moment)
    board.start()
    release = board.release("2.0")
    board.want(release, "2.0")
    board.restart_killed(1)
    assert wait_until(lambda: board.step() == ("installing", 1), LONG_S), board.log()
    board.withdraw("another")
    board.withdraw("update-1")
    assert "was withdrawn" in board.outcome()["reason"]
    assert board.runs("1.0")
    assert board.releases() == ["1.0"]
    assert board.said("bad") == {}
    board.want(release, "2.0", job="again")
    assert board.outcome("again")["state"] == "done", board.log()


@pytest.mark.nightly
def test_a_release_under_which_the_board_goes_down_is_rolled_back_and_bad_the_second_time(board):
    """A release in whose trial the board goes down twice is rolled back and bad.

    The first time, the power may have failed.
    """
    release = board.release("2.0", SILENT)
    board.options = {"healthy-within-s": 60}
    for number, is_bad in ((1, False), (2, True)):
        board.plan_kills(2, "Supervisor._why_unhealthy", "before", cuts_power=True)
        board.start()
        board.want(release, "2.0", job=f"try-{number}")
        board.restart_killed(2)
        assert (
            "2 times the board went down while it was tried"
            in board.outcome(f"try-{number}")["reason"]
        )
        assert (board.said("bad")["2.0"]["attempts"], board.said("bad")["2.0"]["is_bad"]) == (
            number,
            is_bad,
        )
        board.kill_supervisor()
    assert board.runs("1.0")


@pytest.mark.nightly
def test_an_agent_that_does_not_start_any_more_is_replaced_by_the_release_before(board):
    """An agent that ends again and again outside an update is replaced by the release before.

    A file of its release is damaged.
    """
    board.start()
    board.want(board.release("2.0"), "2.0")
    assert board.outcome()["state"] == "done"
    assert board.runs("2.0")
    for module in (board.root / "releases" / "2.0").rglob("agent/cli/main.py"):
        module.write_text("raise ImportError")
        shutil.rmtree(module.parent / "__pycache__")
    board.restart_agent()
    assert board.runs("1.0")
    assert board.outcome(None)["reason"].startswith(
        "rolled back to 1.0, because the agent was started 3 times"
    )
    assert board.said("bad")["2.0"]["is_bad"] is True


@pytest.mark.nightly
def test_a_link_that_was_lost_is_made_anew(board):
    """A `current` link that is absent or points to nowhere is made anew."""
    for target in (None, "releases/7.0"):
        (board.root / "current").unlink()
        if target:
            (board.root / "current").symlink_to(target)
        board.start()
        assert board.runs("1.0")
        board.kill_supervisor()


@pytest.mark.nightly
def test_the_board_is_started_again_once_and_never_during_a_measurement(board):
    """A request for a reboot is granted for one boot only, and never during a measurement."""
    rebooted, boot_id = board.folder / "rebooted", board.folder / "boot-id"
    with locked(board):
        (board.home / "update" / "reboot").write_text(boot_id.read_text() + "\n")
        board.start()
        time.sleep(1)
        assert not rebooted.exists()
    assert wait_until(rebooted.exists)
    board.kill_supervisor()
    boot_id.write_text("second boot")
    rebooted.unlink()
    board.start_supervisor()
    time.sleep(1)
    assert not rebooted.exists()


@pytest.mark.nightly
def test_there_is_one_supervisor(board):
    """A second supervisor ends by itself with status 1."""
    board.start()
    assert board.runs("1.0")
    assert wait_until((board.root / "supervisor.lock").exists)
    first = board._supervisor
    board.start_supervisor()
    assert board._supervisor.wait(LONG_S) == 1
    board._supervisor = first
