"""Tests of boards that cannot be reached, refuse the login, or refuse root.

Each gives one line that says what to do.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from edgemeter.provisioning.apply.board import SshTarget
from tests.fixtures.rows import table_row
from tests.fixtures.servers import LOOPBACK, free_port
from tests.fixtures.ssh_server import keygen
from tests.provisioning.apply.bench import Bench

pytestmark = [pytest.mark.system_python, pytest.mark.needs("openssl", "ssh", "sshd")]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a test user can be made by root only")


def test_a_board_that_cannot_be_reached_is_one_line_with_what_to_do(bench, tmp_path):
    """A board that cannot be reached gives one line with the remedy, and nothing is asked.

    The causes are a refused key, an absent key file, a closed port, an unknown name and a proxy
    that does not speak ssh.
    """
    device, user = bench.device, bench.device.user
    for target, options, remedy in (
        (device.target(), device.options(keygen(tmp_path / "stranger")), "ssh-copy-id"),
        (device.target(), device.options(tmp_path / "absent"), "~/.ssh/config"),
        (
            SshTarget("away", LOOPBACK, user, free_port()),
            device.options(),
            "systemctl enable --now ssh",
        ),
        (SshTarget("away", "board.invalid", "pi"), device.options(), "host"),
        (device.target(), ("ProxyCommand=echo nonsense", *device.options()), "by hand"),
    ):
        with table_row(remedy):
            outcome = bench.apply(target, ssh_options=options)
            assert (outcome.state, outcome.steps) == ("failed", ())
            assert remedy in outcome.remedy
            assert "\n" not in outcome.remedy
    # Whatever stands in fleet.toml: it is a host, and no option of ssh.
    assert (
        bench.apply(SshTarget("board", f"-oProxyCommand=touch {tmp_path}/smuggled", None)).state
        == "failed"
    )
    assert not (tmp_path / "smuggled").exists()


def test_a_host_whose_key_has_changed_is_refused(bench):
    """Another machine at the same address gets neither release nor token.

    With StrictHostKeyChecking an unknown host gets nothing either.
    """
    strict = ("StrictHostKeyChecking=yes", *bench.device.options())
    assert "connect once by hand" in bench.apply(ssh_options=strict).remedy
    assert bench.apply().remedy is None
    assert bench.apply(ssh_options=strict).remedy is None
    bench.device.new_host_key()
    outcome = bench.apply(rejoins=True)
    assert "ssh-keygen -R" in outcome.remedy
    assert bench.tokens == ["board"]


@contextlib.contextmanager
def _another_user(sudo):
    """Make a user with a password for the block, and log in as that user.

    `sudoers` is the user's line there; None means no sudo.
    """
    # Made here, since whatever a file computes when it is imported is the same in all workers.
    user = f"edgemeter-test-{os.getpid()}"
    subprocess.run(["userdel", user], capture_output=True, check=False)
    password, rules = secrets.token_urlsafe(12), Path("/etc/sudoers.d") / user
    subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", user], check=True)
    # Not below pytest's own folder, which is closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="edgemeter-apply-"))
    folder.chmod(0o755)
    try:
        subprocess.run(["chpasswd"], input=f"{user}:{password}\n", text=True, check=True)
        if sudo:
            rules.write_text(f"{user} {sudo}\n")
            rules.chmod(0o440)
        with contextlib.closing(Bench(folder, user)) as bench:
            bench.password = password
            yield bench
    finally:
        rules.unlink(missing_ok=True)
        # A session of this user may take a moment to end.
        subprocess.run(["userdel", "--force", user], check=True, capture_output=True)
        shutil.rmtree(folder)


@pytest.mark.needs("useradd", "sudo")
@as_root
@pytest.mark.usefixtures("quick_installer")
def test_sudo_with_a_password_installs_as_root():
    """The password of sudo goes over standard input.

    No process of the run has it in its arguments or environment, and our output does not contain
    it.
    """
    with _another_user("ALL=(ALL) ALL") as bench:
        with _watched(bench.password) as watched:
            outcome = bench.apply(sudo_password=bench.password)
        assert outcome.remedy is None
        assert bench.current == "1.0.0"
        assert (bench.prefix / "opt/edgemeter/current/bin/edgemeter").stat().st_uid == 0
        assert any("sudo" in line for line in watched["all"])
        assert watched["secret"] == []
        assert bench.password not in repr(outcome) + repr(bench.said)
        second = bench.apply(sudo_password=bench.password)
        assert (second.state, second.remedy) == ("ok", None)


@contextlib.contextmanager
def _watched(secret):
    """Look at every process of this machine again and again during the block.

    The arguments of all processes are collected, and those that show the secret.
    """
    watched, ended = {"all": set(), "secret": []}, threading.Event()

    def look():
        while not ended.wait(0.002):
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    process_text = (process / "cmdline").read_bytes() + (
                        process / "environ"
                    ).read_bytes()
                    watched["all"].add((process / "cmdline").read_bytes().decode(errors="replace"))
                    if secret.encode() in process_text:
                        watched["secret"].append(process_text)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield watched
    finally:
        ended.set()
        watcher.join()


@pytest.mark.needs("useradd", "sudo")
@as_root
@pytest.mark.usefixtures("quick_installer")
def test_a_wrong_password_and_none_are_reported():
    """A missing and a wrong password of sudo are reported before anything is copied.

    The remedy for a missing password names its option.
    """
    with _another_user("ALL=(ALL) ALL") as bench:
        assert "--sudo-password-file" in bench.apply().remedy
        assert "refuses the password" in bench.apply(sudo_password="wrong").remedy
        assert not bench.staged.exists()


@pytest.mark.needs("useradd", "sudo")
@as_root
@pytest.mark.usefixtures("quick_installer")
def test_sudo_without_a_password_asks_for_none(tmp_path):
    """A password that was given for other boards is not run as a program on this one."""
    with _another_user("ALL=(ALL) NOPASSWD: ALL") as bench:
        assert bench.apply(sudo_password=f"touch {tmp_path}/smuggled").remedy is None
        assert not (tmp_path / "smuggled").exists()
