"""Tests of `fleet apply` against a real sshd on loopback.

Everything goes below a folder of the test, and nothing is started.
"""

import contextlib
import fcntl
import hashlib

import pytest

from edgemeter.agent.base.errors import TransientError
from edgemeter.provisioning.apply.board import Board
from tests.fixtures import device_release
from tests.provisioning.apply.bench import Bench, states

pytestmark = [pytest.mark.system_python, pytest.mark.needs("openssl", "ssh", "sshd")]


def test_a_fresh_board_gets_everything_and_a_repeated_run_changes_nothing(tmp_path):
    """A fresh board gets everything, and a repeated run finds each step done.

    The release is copied and installed by the real installer, and the board joins and is
    configured. A unit and a rule that somebody changed by hand are put right.
    """
    with contextlib.closing(Bench(tmp_path)) as bench:
        first = bench.apply()
        assert first.remedy is None
        assert (first.state, bench.current, bench.tokens) == ("changed", "1.0.0", ["board"])
        assert (
            states(first)["copy"] == states(first)["release"] == states(first)["join"] == "changed"
        )
        assert not bench.staged.exists()
        assert [
            path
            for path in bench.prefix.rglob("*")
            if path.is_file() and b"secret-token" in path.read_bytes()
        ] == []
        before = bench.tree()
        second = bench.apply()
        assert (second.state, second.remedy) == ("ok", None)
        assert set(states(second).values()) <= {"ok", "skipped"}
        assert "copy" not in states(second)
        assert (bench.tree(), bench.tokens) == (before, ["board"])
        unit = bench.prefix / "etc/systemd/system/edgemeter-agent.service"
        right = unit.read_text()
        unit.write_text("[Service]\n")
        (bench.prefix / "etc/udev/rules.d/70-edgemeter.rules").unlink()
        outcome = bench.apply(rejoins=True)
        assert {states(outcome)[step] for step in ("units", "join")} == {"changed"}
        assert states(outcome)["release"] == "ok"
        assert unit.read_text() == right
        assert bench.tokens == ["board", "board"]


def test_a_dry_run_prints_the_same_and_does_nothing(bench):
    """A dry run writes neither below the prefix nor in the home folder, and makes no token."""
    outcome = bench.apply(is_dry=True)
    assert outcome.remedy is None
    assert (
        states(outcome)["release"]
        == states(outcome)["units"]
        == states(outcome)["join"]
        == "changed"
    )
    assert (list(bench.prefix.iterdir()), list(bench.device.home.iterdir()), bench.tokens) == (
        [],
        [],
        [],
    )


def test_a_refused_token_is_reported_and_the_next_run_goes_on_from_there(bench):
    """The steps before a refused token stay done, and the secret does not stay on the board."""
    first = bench.apply(join_file=lambda _device: "refused = true\ntoken = 'secret-token'\n")
    assert "the token is not known" in first.remedy
    assert (states(first)["release"], states(first)["join"]) == ("changed", "failed")
    assert not (bench.prefix / "etc/edgemeter/join.toml").exists()
    second = bench.apply()
    assert (second.remedy, states(second)["release"], states(second)["join"]) == (
        None,
        "ok",
        "changed",
    )


def test_a_release_waits_for_the_end_of_a_measurement(bench):
    """A release is not switched during a measurement, because the switch would end it."""
    (bench.prefix / "run/lock").mkdir(parents=True)
    bench.apply()
    bench.releases = [device_release.make(bench.folder / "newer", bench.fleet, version="2.0.0")]
    bench.on_device = bench.on_device.replace("LOCK_S = 20.0", "LOCK_S = 0.1")
    with (bench.prefix / "run/lock/edgemeter-run.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        blocked = bench.apply()
    assert "a measurement is going on" in blocked.remedy
    assert bench.current == "1.0.0"
    assert bench.apply().remedy is None
    assert bench.current == "2.0.0"


def test_a_board_with_a_newer_release_keeps_it(bench):
    """Version 10 counts as newer than 9, and a newer release on the board stays.

    Where `current` does not name a version, the release is installed.
    """
    bench.releases = [device_release.make(bench.folder / "first", bench.fleet, version="1.10.0")]
    bench.apply()
    bench.releases = [device_release.make(bench.folder / "older", bench.fleet, version="1.9.0")]
    outcome = bench.apply()
    assert (outcome.remedy, states(outcome)["release"], bench.current) == (
        None,
        "skipped",
        "1.10.0",
    )
    root = bench.prefix / "opt/edgemeter"
    (root / "releases/1.10.0").rename(root / "releases/handmade")
    (root / "current").unlink()
    (root / "current").symlink_to("releases/handmade")
    outcome = bench.apply()
    assert (outcome.remedy, states(outcome)["release"], bench.current) == (None, "changed", "1.9.0")


def test_a_part_of_a_file_is_continued_and_what_is_there_is_not_sent(bench, tmp_path):
    """A partly copied file is continued, and a complete one is recognised by its hash.

    A file that is longer, or is not the beginning of ours, is overwritten.
    """
    content = hashlib.shake_256(b"release").digest(200_000)
    file, copy = tmp_path / "release.tar", bench.device.home / "staged files/release.tar"
    file.write_bytes(content)
    with Board(bench.device.target(), bench.device.options()) as board:
        for begun, copied_bytes in (
            (None, 0),
            (content[:150_000], 150_000),
            (b"?" * 100_000, 0),
            (content + b"x", 0),
            (content, 200_000),
        ):
            if begun is not None:
                copy.write_bytes(begun)
            assert board.copied_bytes(file, str(copy)) == copied_bytes
            board.copy(file, str(copy), copied_bytes)
            assert copy.read_bytes() == content


def test_a_run_that_was_cut_off_goes_on_where_it_was(bench):
    """A board that was rebooted in the middle of a run is completed by the next run.

    It is cut off while files are copied, and between the installation and the join.
    """
    release = bench.releases[0]
    bench.staged.parent.mkdir(parents=True)
    bench.staged.write_bytes(release.read_bytes()[:200_000])

    def fail(device):
        raise TransientError(f"{device} is away")

    first = bench.apply(join_file=fail)
    assert (first.remedy, bench.current) == ("board is away", "1.0.0")
    (copied,) = [step.detail for step in first.steps if step.step == "copy"]
    assert copied == f"{release.stat().st_size / 1e6 - 0.2:.1f} MB"
    (bench.prefix / "run/edgemeter-apply-restart").unlink()
    second = bench.apply()
    assert (second.remedy, states(second)["release"], states(second)["join"]) == (
        None,
        "ok",
        "changed",
    )
    assert "copy" not in states(second)
    assert not bench.staged.exists()
