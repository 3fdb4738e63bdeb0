"""Boards that are short of something: room, or a Python."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgemeter.provisioning.apply import bring
from edgemeter.provisioning.apply.facts import LOOK
from edgemeter.provisioning.release import install
from tests.fixtures.small_disk import small_disk


@pytest.mark.system_python
@pytest.mark.needs("openssl", "ssh", "sshd")
def test_a_full_board_is_left_without_a_release_and_without_an_agent(bench, monkeypatch):
    """A full board is left without a release and without an agent.

    The file system of a few megabytes and the installer are real. Once there is more room, the
    files that were copied are used.
    """
    monkeypatch.setattr(bring, "INSTALLER", Path(install.__file__))
    bench.prefix.rmdir()
    with small_disk(bench.prefix, 8):
        outcome = bench.apply()
        assert list(bench.prefix.glob("opt/edgemeter/releases/*")) == []
        assert list(bench.prefix.glob("etc/systemd/system/*")) == []
    assert "no space: the release needs" in outcome.remedy
    assert ("release", "failed") in {(step.step, step.state) for step in outcome.steps}
    assert bench.staged.exists()


@pytest.mark.system_python
@pytest.mark.needs("openssl", "ssh", "sshd")
def test_an_old_board_is_told_which_python_to_unpack_and_works_with_it(bench):
    """The message names the folder for a Python, and the supervisor uses the one unpacked there."""
    bench.look, count = re.subn(
        r"^for name in python3 .*3\.10 ", "for name in ", bench.look, flags=re.MULTILINE
    )
    assert count == 1
    folder = bench.prefix / "opt/edgemeter/pythons/3.11"
    assert f"sudo tar -xz -C {folder} --strip-components=1" in bench.apply().remedy
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python3").symlink_to(
        next(
            path
            for name in ("/usr/local/bin", "/usr/bin")
            if (path := Path(name, "python3")).exists()
        )
    )
    first = bench.apply()
    assert (first.remedy, bench.current) == (None, "1.0.0")
    drop_in = bench.prefix / "etc/systemd/system/edgemeter-supervisor.service.d/python.conf"
    assert f"ExecStart={folder}/bin/python3 " in drop_in.read_text()
    second = bench.apply()
    assert (second.state, second.remedy) == ("ok", None)


@pytest.mark.services
def test_what_examines_a_board_is_posix_shell(tmp_path):
    """The script that examines a board runs in any /bin/sh, and without a home folder."""
    for shell in ("dash", "busybox"):
        if program := shutil.which(shell):
            command = [
                program,
                *(["sh"] if shell == "busybox" else []),
                "-s",
                "--",
                f"{tmp_path}/opt/edgemeter",
            ]
            environment = {"HOME": str(tmp_path)}
            output = subprocess.run(
                command,
                input=LOOK.read_bytes(),
                capture_output=True,
                check=True,
                timeout=300,
                env=environment,
            ).stdout
            assert output.endswith(b"end=yes\n")
