"""`fleet apply --disk` against a real sshd: a real Debian on a partition of a loop device, as on the NVMe or eMMC of a board.

Its partitions are named as theirs, /dev/loop0p2; it needs root, to mount.
"""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from edgemeter.provisioning.apply.applying import STAGE
from tests import requirements
from tests.fixtures import device_release
from tests.provisioning.apply.bench import Bench, states
from tests.provisioning.image.cards import run

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.system_python,
    pytest.mark.needs("losetup", "mkfs.vfat", "openssl", "sfdisk", "ssh", "sshd"),
]
START, BOOT_SECTORS, ROOT_SECTORS = 2048, 65_536, 1_536_000
SECTOR_BYTES = 512
TRIXIE_PYTHON = "3.13"


@contextlib.contextmanager
def loop_device(image: Path):
    """Yield the loop device of an image, with its partitions, or skip."""
    completed = subprocess.run([requirements.program("losetup"), "--find", "--show", image], capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        pytest.skip(f"no loop device here: {completed.stderr.strip()}")
    device = completed.stdout.strip()
    try:
        # Not by the kernel, which may have been built without any partition table.
        run("partx", "--add", device)
        yield device
    finally:
        run("partx", "--delete", device)
        run("losetup", "--detach", device)


def disk_image(path: Path, *systems: Path) -> Path:
    """Write a disk with a FAT partition and these systems, each on an ext4 of its own."""
    starts = [START + BOOT_SECTORS + number * ROOT_SECTORS for number in range(len(systems))]
    with path.open("wb") as image:
        image.truncate((START + BOOT_SECTORS + ROOT_SECTORS * len(systems)) * SECTOR_BYTES)
    layout = f"label: dos\nstart={START},size={BOOT_SECTORS},type=c\n"
    run("sfdisk", "-q", path, input=layout + "".join(f"start={start},size={ROOT_SECTORS},type=83\n" for start in starts))
    run("mkfs.vfat", "-F", "16", "--offset", str(START), path, str(BOOT_SECTORS // 2))
    for start, system in zip(starts, systems, strict=True):
        size = f"{ROOT_SECTORS * SECTOR_BYTES >> 20}M"
        run("mke2fs", "-q", "-F", "-t", "ext4", "-d", system, "-E", f"offset={start * SECTOR_BYTES}", path, size)
    return path


def on_disk(disk: str, command: str) -> str:
    """Return what a command prints in the system on the second partition."""
    inside = f"mount {disk}p2 /mnt && exec chroot /mnt sh -c '{command}'"
    return run("unshare", "--mount", "sh", "-c", inside, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


@pytest.fixture
def disk_bench(tmp_path):
    """Return a bench whose release fits the system on the disk."""
    with contextlib.closing(Bench(tmp_path, has_own_lock=os.geteuid() == 0)) as bench:
        bench.releases = [device_release.make(tmp_path / "trixie-release", bench.fleet, python=TRIXIE_PYTHON)]
        yield bench


@pytest.mark.trixie
def test_the_system_on_another_disk_gets_the_agent_and_the_running_one_nothing(trixie, disk_bench, tmp_path):
    """Installed by its own Python, enabled, joined; a repeated run changes nothing; no mount and no copy of the release stays."""
    root = tmp_path / "root"
    root.mkdir()
    run("tar", "-xf", trixie, "-C", root)
    # As systemd-resolved leaves it: a link to nothing as long as that system is off.
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")
    before = {path: path.stat().st_mtime_ns for path in (Path("/etc/passwd"), Path("/etc/systemd/system"))}
    with loop_device(disk_image(tmp_path / "disk.img", root)) as disk:
        dry = disk_bench.apply(prefix="", disk=disk, is_dry=True)
        assert (dry.remedy, disk_bench.tokens) == (None, [])
        first = disk_bench.apply(prefix="", disk=disk)
        assert (first.remedy, first.state, disk_bench.tokens) == (None, "changed", ["board"])
        assert "Debian GNU/Linux 13" in first.found
        assert states(first)["start"] == "skipped"
        second = disk_bench.apply(prefix="", disk=f"{disk}p2")
        assert (second.remedy, second.state) == (None, "ok")
        assert f"{Path(disk).name}p" not in Path("/proc/self/mountinfo").read_text()
        assert on_disk(disk, "/opt/edgemeter/current/bin/edgemeter --version").strip() == "edgemeter 1.0.0"
        assert on_disk(disk, "stat -c %U /var/lib/edgemeter/joined").strip() == "edgemeter"
        for unit in ("edgemeter-agent", "edgemeter-supervisor"):
            assert on_disk(disk, f"readlink /etc/systemd/system/multi-user.target.wants/{unit}.service")
        assert on_disk(disk, "readlink /etc/resolv.conf; ls /run").splitlines()[0] == "../run/systemd/resolve/stub-resolv.conf"
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not (disk_bench.device.home / STAGE).exists()


def test_a_disk_without_one_system_is_refused_with_what_to_do(disk_bench, tmp_path):
    """None, two, a file that is no disk, and the disk that the board runs from: one line each, nothing is mounted."""
    system = tmp_path / "system"
    for folder in ("usr/bin", "etc"):
        (system / folder).mkdir(parents=True)
    (system / "etc/os-release").symlink_to("/usr/lib/os-release")
    with loop_device(disk_image(tmp_path / "none.img")) as disk:
        assert f"there is no Linux system on {disk} that can be mounted" in disk_bench.apply(prefix="", disk=disk).remedy
    with loop_device(disk_image(tmp_path / "two.img", system, system)) as disk:
        assert f"give the partition of one ({disk}p2 {disk}p3)" in disk_bench.apply(prefix="", disk=disk).remedy
    (system / "etc/fstab").write_text("# <file system>\nUUID=1 / ext4 defaults 0 1\nUUID=2 /var ext4 defaults 0 2\n")
    with loop_device(disk_image(tmp_path / "apart.img", system)) as disk:
        assert "/var of the system on" in disk_bench.apply(prefix="", disk=disk).remedy
    assert "is no disk of this board" in disk_bench.apply(prefix="", disk=str(tmp_path / "none.img")).remedy
    running = run("findmnt", "-no", "SOURCE", "/").strip()
    if running.startswith("/dev/"):
        assert "this board runs from" in disk_bench.apply(prefix="", disk=running).remedy
