"""Facts about a whole first boot in a root of Debian's.

Cloud-init's own stages read the card, and the script of our unit installs and joins. It needs root,
for chroot.
"""

import subprocess
from pathlib import Path

import pytest

from tests.provisioning.image import cards

pytestmark = [pytest.mark.nightly, cards.on_disk, pytest.mark.trixie]
CMDLINE = "console=tty1 root=LABEL=root rootwait"


class Root:
    """A root of Debian's in a folder, where programs run by chroot.

    They have /proc and a host name of their own, because cloud-init sets one.
    """

    def __init__(self, tar: Path, path: Path) -> None:
        self.path = path
        path.mkdir()
        cards.run("tar", "-xf", tar, "-C", path)

    def run(self, command: str, **environment: str) -> str:
        """Return what a command printed in there; it has to end well."""
        inside = (
            f"mount -t proc proc {self.path}/proc && exec chroot {self.path} /bin/sh -c '{command}'"
        )
        completed = subprocess.run(
            ["unshare", "--mount", "--pid", "--uts", "--fork", "sh", "-c", inside],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_OFFLINE": "1", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert completed.returncode == 0, (command, completed.stdout, completed.stderr)
        return completed.stdout


def test_firstrun_sets_up_the_wifi_and_leaves_our_unit(trixie, fleet, tmp_path):
    """On a real Debian the script sets up the network and enables our unit.

    The kernel's line is what it was before.
    """
    root = Root(trixie, tmp_path / "root")
    before = f"{CMDLINE} init=/usr/lib/raspberrypi-sys-mods/firstboot"
    card = cards.disk(tmp_path / "card.img", {"cmdline.txt": before})
    (tmp_path / "psk").write_text("correct horse battery\n")
    assert (
        cards.prepare(fleet, card, "--wifi-ssid", "Garden", "--wifi-psk-file", tmp_path / "psk")[
            "first_boot"
        ]
        == "firstrun"
    )
    boot = root.path / "boot/firmware"
    cards.mtools_tree(card, boot)
    (root.path / "etc/NetworkManager/system-connections").mkdir(parents=True)
    cards.as_bookworm_does(boot)
    assert "systemd.run=/boot/firmware/firstrun.sh" in (boot / "cmdline.txt").read_text()
    root.run("bash /boot/firmware/firstrun.sh")
    assert (boot / "cmdline.txt").read_text().strip() == before
    assert not (boot / "firstrun.sh").exists()
    connection = root.path / "etc/NetworkManager/system-connections/edgemeter.nmconnection"
    assert "ssid=71;97;114;100;101;110;" in connection.read_text()
    assert connection.stat().st_mode & 0o777 == 0o600
    assert (
        root.path / "etc/systemd/system/multi-user.target.wants/edgemeter-firstboot.service"
    ).is_symlink()
