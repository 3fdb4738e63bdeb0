"""Tests of a release key that is rotated over the air.

The supervisor and the installer are real; updates are signed by the old key and by the new one, and
processes are killed.
"""

import argparse
import importlib
import json
import time
from pathlib import Path

import pytest

from edgemeter.provisioning.release import install
from tests.fixtures import small_release
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.update_board import LONG_S


@pytest.fixture
def new_key(tmp_path):
    folder = tmp_path / "new"
    folder.mkdir()
    key, public = small_release.keys(folder)
    return key, public.read_text()


def trusted(board):
    return len(install.public_keys((board.root / "release.pub").read_bytes()))


def updated(board, version, keys, built_ns, **changes):
    release, job = (
        board.release(version, tools={"release.keys": keys}, manifest={"built_ns": built_ns}),
        f"to-{built_ns}",
    )
    board.want(release, version, job=job, **changes)
    return board.outcome(job)["state"]


@pytest.mark.nightly
@pytest.mark.needs("openssl")
def test_the_new_key_is_taken_by_an_update_that_the_old_one_signed(board, new_key):
    """An update that the old key signed brings the new key; after the next one it alone counts.

    No release of the past brings the old key back: neither one that is older than the running
    release, nor one that is newer than such a one alone.
    """
    old, (key, public) = board.key, new_key
    both = public + (board.root / "release.pub").read_text()
    board.start()
    assert updated(board, "2.0", both, 20) == "done", board.log()
    assert wait_until(lambda: trusted(board) == 2, LONG_S)
    board.key = key
    assert updated(board, "5.0", public, 50) == "done", board.log()
    assert wait_until(lambda: trusted(board) == 1, LONG_S)
    board.key = old
    assert updated(board, "6.0", both, 60) == "failed"
    assert board.runs("5.0")
    board.key = key
    assert updated(board, "3.0", both, 30) == "failed"
    for version, built_ns in (("3.1", 31), ("4.0", 40)):
        assert updated(board, version, both, built_ns, even_if="older") == "done", board.log()
        assert board.runs(version)
    board.kill_supervisor()
    board.start_supervisor()
    time.sleep(1)
    assert trusted(board) == 1


def test_keys_come_from_the_release_that_was_built_last(tmp_path, monkeypatch):
    """Keys come from the release that was built last.

    An older release changes no key, nor does one that is newer than such a one alone. Where a
    release has no keys, those of the device stay.
    """
    monkeypatch.syspath_prepend(Path(install.__file__).parent)
    supervisor = importlib.import_module("supervisor")
    device = supervisor.Supervisor(
        argparse.Namespace(**{**supervisor.OPTIONS, "root": tmp_path, "home": tmp_path})
    )
    old, new, newest = (
        f"-----BEGIN PUBLIC KEY-----\n{name}\n-----END PUBLIC KEY-----\n"
        for name in ("old", "new", "newest")
    )
    for version, before, built_ns, keys, expected in (
        ("2.0", "1.0", 20, new + old, new + old),
        ("5.0", "2.0", 50, new, new),
        ("3.0", "5.0", 30, new + old, new),
        ("4.0", "3.0", 40, new + old, new),
        ("6.0", "4.0", 60, "", new),
        ("6.1", "6.0", 60, old, new),
        ("7.0", "6.1", 70, newest, newest),
    ):
        release = tmp_path / "releases" / version
        (release / "bin").mkdir(parents=True)
        (release / "bin/python").touch()
        (release / "manifest.json").write_text(json.dumps({"built_ns": built_ns}))
        (release / "release.keys").write_text(keys)
        with table_row(version):
            device._write(newest_ns=device._trust_keys(version, before))
            assert (tmp_path / "release.pub").read_text() == expected
