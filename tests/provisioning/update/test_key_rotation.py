"""A release key rotates over the air: real supervisor and installer, updates signed by the old key and by the new one, kills."""

import time

import pytest

from edgemeter.provisioning.release.install import public_keys
from tests.fixtures import small_release
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.update_board import LONG_S

pytestmark = [pytest.mark.nightly, pytest.mark.needs("openssl")]


@pytest.fixture
def rotation(board, tmp_path):
    """Return the board, and the new private key with the two `release.keys`: of the open rotation, and after it."""
    folder = tmp_path / "new"
    folder.mkdir()
    key, public = small_release.keys(folder)
    old = (board.root / "release.pub").read_text()
    opened = f"# edgemeter release keys, number 1, since 5\n{public.read_text()}{old}"
    return board, key, opened, f"# edgemeter release keys, number 2, since 6\n{public.read_text()}"


def trusted(board):
    """Return how many keys the board trusts."""
    return len(public_keys((board.root / "release.pub").read_bytes()))


def updated(board, version, tools=None):
    """Return how the update to a release of that version ended."""
    board.want(board.release(version, tools=tools), version, job=f"to-{version[0]}")
    return board.outcome(f"to-{version[0]}")["state"]


def test_the_new_key_is_taken_by_an_update_that_the_old_one_signed(rotation):
    """Then both are accepted, after the next update the new one alone; a release of the past brings the old one not back."""
    board, key, opened, ended = rotation
    old = board.key
    board.start()
    assert updated(board, "2.0", {"release.keys": opened}) == "done", board.log()
    assert wait_until(lambda: trusted(board) == 2, LONG_S)
    board.key = key
    assert updated(board, "3.0", {"release.keys": ended}) == "done", board.log()
    assert wait_until(lambda: trusted(board) == 1, LONG_S)
    board.key = old
    assert updated(board, "4.0") == "failed"
    assert board.runs("3.0")
    board.key = key
    # What an earlier release brings has a smaller number.
    assert updated(board, "6.0", {"release.keys": opened}) == "done", board.log()
    assert board.runs("6.0")
    board.kill_supervisor()
    board.start_supervisor()
    time.sleep(1)
    assert trusted(board) == 1
