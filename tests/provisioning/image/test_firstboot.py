"""Facts about `firstboot.sh`, which may be cut off at any moment.

It runs in a temporary root as an ordinary user, as it does on a board.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.provisioning.image import cards

pytestmark = pytest.mark.needs("openssl")

SHELL = "dash" if shutil.which("dash") else "sh"


@pytest.fixture(scope="session")
def payload(fleet, tmp_path_factory):
    """Return the boot partition that `fleet card` prepares for cloud-init, with a Wi-Fi network."""
    boot = tmp_path_factory.mktemp("payload")
    (boot / "user-data").write_text('#cloud-config\nuser:\n  name: ada\n  passwd: "$6$salt$hash"\n')
    (boot / "cmdline.txt").write_text("console=tty1 rootwait\n")
    psk = boot.with_name("psk")
    psk.write_text("correct horse battery\n")
    wifi = ["--wifi-ssid", "Garden", "--wifi-psk-file", psk, "--wifi-country", "GB"]
    assert cards.prepare(fleet, boot, *wifi)["first_boot"] == "cloudinit"
    return boot


@pytest.fixture
def board(payload, tmp_path):
    """Return a board: its root, and `run()`, which starts the script there.

    `systemctl` writes down its arguments.
    """
    return make_board(tmp_path / "root", payload)


def make_board(root: Path, payload: Path) -> SimpleNamespace:
    """Make a board with a boot partition like `payload`."""
    shutil.copytree(payload, root / "boot/firmware")
    (root / "etc/cloud").mkdir(parents=True)
    systemctl = root / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >>{root}/said\n')
    systemctl.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "EDGEMETER_PREFIX": str(root),
        "EDGEMETER_SYSTEMCTL": str(systemctl),
    }

    def start(verb: str = "run", **variables: str) -> subprocess.Popen:
        script = root / "boot/firmware/edgemeter/firstboot.sh"
        script = script if script.exists() else root / "opt/edgemeter/firstboot.sh"
        return subprocess.Popen(
            [SHELL, str(script), verb],
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(verb: str = "run", **variables: str) -> SimpleNamespace:
        process = start(verb, **variables)
        out, err = process.communicate(timeout=900)
        return SimpleNamespace(returncode=process.returncode, out=out, err=err)

    token = cards.token((payload / "edgemeter/join.toml").read_text())
    return SimpleNamespace(
        root=root,
        boot=root / "boot/firmware",
        state=root / "var/lib/edgemeter",
        token=token,
        start=start,
        run=run,
    )


def systemctl_calls(board) -> list[str]:
    return (board.root / "said").read_text().splitlines()


def check_joined(board):
    """Check that the board is complete and joined.

    It has release, units and identity, no secrets, and nothing left over.
    """
    assert (board.state / "joined").exists()
    assert (board.state / "firstboot.done").exists()
    assert (board.root / "opt/edgemeter/current").readlink() == Path("releases/0.0.1")
    assert subprocess.run(
        [board.root / "opt/edgemeter/current/bin/edgemeter", "--version"],
        capture_output=True,
        check=True,
    ).stdout
    assert (board.root / "etc/systemd/system/edgemeter-agent.service").read_bytes()
    assert (board.root / "opt/edgemeter/proven/supervisor.py").read_bytes()
    assert (board.root / "opt/edgemeter/release.pub").read_bytes()
    assert (board.state / "identity/device.crt").read_text() == "a certificate"
    assert (
        "start --no-block edgemeter-supervisor.service edgemeter-agent.service"
        in systemctl_calls(board)
    )
    assert (board.root / "etc/cloud/cloud-init.disabled").exists()
    assert not [
        path for path in board.state.iterdir() if path.name.startswith(("payload", "join.toml"))
    ]
    assert "state:   joined" in (board.boot / "edgemeter/status.txt").read_text()
    check_no_secret(board)


def check_no_secret(board):
    """Look that no file of the board holds a secret any more."""
    for path in board.root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            assert b"$6$salt$hash" not in data, path
            assert b'password: "xx' in data or b"access-points" not in data, path
            assert board.token.encode() not in data, path


def test_a_board_installs_joins_and_forgets_its_secrets(board, payload):
    """The script installs, joins and removes the secrets; called again, it does no harm."""
    assert board.run("install").returncode == 0
    assert systemctl_calls(board) == [
        "daemon-reload",
        "enable edgemeter-firstboot.service",
        "start --no-block edgemeter-firstboot.service",
    ]
    first = board.run()
    assert first.returncode == 0, first.err
    check_joined(board)
    repeated = board.run()
    assert repeated.returncode == 0, repeated.err
    check_joined(board)
    # Secrets are overwritten where they lie: the length stays, so no old cluster is left with their
    # bytes, and all else stays as it was.
    for name in ("edgemeter/join.toml", "network-config", "user-data"):
        before, after = (payload / name).read_text(), (board.boot / name).read_text()
        assert before != after
        assert len(before) == len(after)
        changed = [
            line
            for line, new in zip(before.splitlines(), after.splitlines(), strict=True)
            if line != new
        ]
        assert [line.split()[0].strip(":=") for line in changed] == [
            {"network-config": "password", "user-data": "passwd"}.get(name, "token")
        ]


def test_the_breadcrumb_names_where_it_failed_and_never_a_secret(board):
    """A card pulled from a silent board explains on any PC where the first boot failed.

    A line that holds the token is withheld.
    """
    board.state.mkdir(parents=True)
    (board.state / "refuse").write_text("the broker at 192.0.2.1 does not answer")
    failed = board.run()
    assert failed.returncode == 1
    crumb = (board.boot / "edgemeter/status.txt").read_text()
    assert (
        "state:   failed, retrying in 20 s\nstep:    set up the board and join the fleet (2 of 3)\n"
        in crumb
    )
    assert (
        "\nerror:   `edgemeter agent join` failed: Error: the broker at 192.0.2.1 does not answer\n"
        in crumb
    )
    (board.state / "refuse").write_text(f"no such token as {board.token}")
    failed = board.run()
    assert (
        board.token
        not in failed.out + failed.err + (board.boot / "edgemeter/status.txt").read_text()
    )
    assert "holds a secret" in failed.err
    (board.state / "refuse").unlink()
    assert board.run().returncode == 0
    check_joined(board)


@pytest.mark.nightly
def test_a_network_that_a_power_cut_left_empty_is_written_anew(board):
    """An empty network file, left by a power cut, is removed so that cloud-init writes it anew.

    Cloud-init forgets its earlier run and the board starts again; then it joins.
    """
    torn, instance = (
        board.root / "etc/netplan/50-cloud-init.yaml",
        board.root / "var/lib/cloud/instance",
    )
    torn.parent.mkdir(parents=True)
    torn.touch()
    instance.mkdir(parents=True)
    assert board.run().returncode != 0
    assert "reboot" in systemctl_calls(board)
    assert not torn.exists()
    assert not instance.exists()
    torn.write_text("network: {version: 2}\n")
    assert board.run().returncode == 0
    assert systemctl_calls(board).count("reboot") == 1
    assert torn.read_text() == "network: {version: 2}\n"


@pytest.mark.nightly
def test_killed_at_twenty_random_moments_it_recovers_each_time(payload, tmp_path):
    """Twenty boards, each killed once at a random moment of its first boot, join at the next."""
    begin_s = time.monotonic()
    assert make_board(tmp_path / "whole", payload).run().returncode == 0
    whole_s = time.monotonic() - begin_s
    moments = random.Random(9)  # noqa: S311 - moments, no secrets
    for number in range(20):
        board = make_board(tmp_path / f"root{number}", payload)
        process = board.start()
        time.sleep(moments.uniform(0, whole_s))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        finished = board.run()
        assert finished.returncode == 0, finished.err
        check_joined(board)
        shutil.rmtree(board.root)
