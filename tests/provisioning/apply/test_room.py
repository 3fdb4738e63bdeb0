"""Boards that are short of something: room, or a Python."""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from edgemeter.provisioning.apply import offer
from edgemeter.provisioning.apply.board import LOOK
from tests.fixtures import device_release
from tests.fixtures.small_disk import small_disk
from tests.provisioning.apply.bench import states


@pytest.mark.system_python
@pytest.mark.needs("openssl", "ssh", "sshd")
def test_a_full_board_is_reported_before_anything_is_copied(bench, tmp_path):
    """A real file system of a few megabytes."""
    with small_disk(tmp_path / "small", 8) as small:
        outcome = bench.apply(prefix=str(small))
        assert list(small.iterdir()) == []
    assert "not enough room" in outcome.remedy
    assert "8 MB are free" in outcome.remedy
    assert not any(bench.stage.rglob("*.whl"))


@pytest.fixture
def old_board(monkeypatch, tmp_path):
    """Let the board find no Python of its own but those that were brought."""
    text = re.sub(r"^for name in python3 .*; do$", "for name in none-of-its-own; do", LOOK.read_text(), flags=re.MULTILINE)
    assert text != LOOK.read_text()
    (tmp_path / "look.sh").write_text(text)
    monkeypatch.setattr("edgemeter.provisioning.apply.board.LOOK", tmp_path / "look.sh")


def a_python(folder):
    """Return a tar of a relocatable Python: this machine's own, by a link."""
    version = device_release.system_python()
    system_python = next(path for name in ("/usr/local/bin/python3", "/usr/bin/python3") if (path := Path(name)).exists())
    bin_folder = folder / "python/bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python3").symlink_to(system_python)
    (bin_folder / f"python{version}").symlink_to(system_python)
    with tarfile.open(folder / "python.tar.gz", "w:gz") as archive:
        archive.add(folder / "python", "python")
    return folder / "python.tar.gz"


@pytest.mark.system_python
@pytest.mark.needs("openssl", "ssh", "sshd")
@pytest.mark.usefixtures("old_board")
def test_an_old_board_is_asked_to_bring_a_python_and_works_with_one(bench, tmp_path):
    """Unpacked where nothing replaces it; the second time it is found there."""
    assert "--python-tar" in bench.apply().remedy
    brought = offer.read_python_tar(a_python(tmp_path))
    dry = bench.apply(python_tar=brought, is_dry=True)
    assert (dry.remedy, states(dry)) == (None, {"python": "changed"})
    assert list(bench.prefix.iterdir()) == []
    first = bench.apply(python_tar=brought)
    assert (first.remedy, states(first)["python"], bench.current) == (None, "changed", "1.0.0")
    assert Path(brought.folder(str(bench.prefix)), "bin/python3").exists()
    drop_in = bench.prefix / "etc/systemd/system/edgemeter-supervisor.service.d/python.conf"
    assert f"ExecStart={brought.folder('')}/bin/python3 " in drop_in.read_text()
    second = bench.apply(python_tar=brought)
    assert (second.state, second.remedy) == ("ok", None)


@pytest.mark.services
def test_what_examines_a_board_is_posix_shell(tmp_path):
    """It runs in whatever /bin/sh a board has, and without a home."""
    for shell in ("dash", "busybox"):
        if program := shutil.which(shell):
            command = [program, *(["sh"] if shell == "busybox" else []), "-s", "--", str(tmp_path)]
            environment = {"HOME": str(tmp_path)}
            output = subprocess.run(command, input=LOOK.read_bytes(), capture_output=True, check=True, timeout=300, env=environment).stdout
            assert output.endswith(b"end=yes\n")
