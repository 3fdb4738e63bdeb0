"""`fleet apply` that is killed, and run again."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgemeter.provisioning.apply import ssh
from edgemeter.provisioning.apply.ssh import FileToCopy, SshConnection
from tests.fixtures import device_release
from tests.provisioning.apply.bench import states

pytestmark = [pytest.mark.system_python, pytest.mark.needs("openssl", "ssh", "sshd")]

ROOT = Path(__file__).resolve().parents[3]
# Every byte through a pipe that takes a moment for each piece: an end in the middle is sure.
SLOW_PIPE = """import socket, sys, threading, time
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def back():
    while piece := line.recv(65536):
        sys.stdout.buffer.write(piece); sys.stdout.buffer.flush()
threading.Thread(target=back, daemon=True).start()
while piece := sys.stdin.buffer.read1(16384):
    line.sendall(piece); time.sleep(0.02)
"""
COMMAND = """import sys
sys.path.insert(0, sys.argv[1])
from edgemeter.agent.cli.main import main
sys.argv[1:] = sys.argv[2:]
main()
"""


def file_to_copy(path, content):
    """Write a file to send."""
    path.write_bytes(content)
    return FileToCopy(path, path.name, hashlib.sha256(content).hexdigest(), len(content))


def started(bench, *options):
    """Start the command itself, in a process group of its own."""
    device = bench.device
    command = f"apply board --host 127.0.0.1 --user {device.user} --port {device.server.port}".split()
    command += ["--prefix", str(bench.prefix), "--release", str(bench.releases[0])]
    command += ["--identity-file", str(device.key)]
    command += [part for option in device.settings for part in ("--ssh-option", option)]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(ROOT), "fleet", "--folder", str(bench.fleet.path), *command, *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def killed_when(process, is_so, patience_s=120.0):
    """Kill the command and all that it started as soon as `is_so`; it must not have ended before."""
    until_s = time.monotonic() + patience_s
    try:
        while not is_so():
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < until_s, "it never came so far"
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_part_of_a_file_is_continued_and_what_is_there_is_not_sent(bench, tmp_path):
    """Known by their hashes; a part that is not the beginning of the file is thrown away."""
    contents = {name: hashlib.shake_256(name.encode()).digest(200_000) for name in ("whole", "part", "other", "absent")}
    files = [file_to_copy(tmp_path / name, content) for name, content in contents.items()]
    folder = bench.device.home / "staged files"
    folder.mkdir()
    (folder / "whole").write_bytes(contents["whole"])
    (folder / "part").write_bytes(contents["part"][:150_000])
    (folder / "other").write_bytes(b"?" * 100_000)
    (folder / "of another release").write_bytes(b"x")
    with SshConnection(bench.device.target(), bench.device.options()) as connection:
        offsets = {file.name: offset for file, offset, _ in ssh.missing_files(connection, str(folder), files)}
        assert offsets == {"part": 150_000, "other": 0, "absent": 0}
        assert ssh.copy_files(connection, str(folder), files, lambda _done, _total: None) == 450_000
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents


@pytest.mark.nightly
def test_killed_in_the_install_it_is_done_by_the_next_run(bench):
    """By the real installer, whose half release is none."""
    bench.releases = [device_release.make(bench.folder / "real", bench.fleet)]
    releases = bench.prefix / "opt/edgemeter/releases"
    killed_when(started(bench), (releases / "1.0.0/bin").exists)
    outcome = bench.apply()
    assert (outcome.remedy, bench.current) == (None, "1.0.0")
    assert (states(outcome)["join"], bench.apply().state) == ("changed", "ok")
