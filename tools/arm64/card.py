"""A card as from the shop.

It has a FAT boot partition as Raspberry Pi OS has it, and Debian for arm64 with cloud-init behind
it.
"""

import lzma
import shutil
import tempfile
from pathlib import Path

from tests.provisioning.image import cards
from tools.arm64 import emulation
from tools.arm64.emulation import run

SECTOR = 512
BOOT_START, BOOT_SECTORS = 16_384, 524_288
ROOT_START = BOOT_START + BOOT_SECTORS
ROOT_MB = 2600
BOOT_OFFSET, ROOT_OFFSET = BOOT_START * SECTOR, ROOT_START * SECTOR
# In this order: each needs those before it. What the kernel has built in is not there as a file.
MODULES = (
    *(
        "virtio_blk",
        "crc16",
        "crc32c_generic",
        "libcrc32c",
        "mbcache",
        "jbd2",
        "ext4",
        "nls_cp437",
        "nls_ascii",
        "fat",
        "vfat",
    ),
    *("failover", "net_failover", "virtio_net"),
)
CLOUD = (
    "datasource_list: [NoCloud, None]\ndatasource:\n  NoCloud:\n    seedfrom: "
    "file:///boot/firmware\n"
)
# A busy host makes the board slow: devices are waited for longer than the usual 90 s.
CMDLINE = (
    "console=ttyAMA0,115200 root=/dev/vda2 rootfstype=ext4 net.ifnames=0 rw rootwait "
    "systemd.default_device_timeout_sec=900 systemd.default_timeout_start_sec=900"
)
FSTAB = "LABEL=BOOTFS /boot/firmware vfat defaults 0 2\n"
BOOT_FILES = {
    "config.txt": "arm_64bit=1\n",
    "cmdline.txt": CMDLINE,
    "issue.txt": "Debian trixie for a board without a name\n",
    "user-data": "#cloud-config\n",
    "meta-data": "instance_id: rpios-image\n",
    "network-config": (
        "network:\n  version: 2\n  ethernets:\n    eth0:\n      dhcp4: true\n      optional: true\n"
    ),
}
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /new
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$module; done
while [ ! -b /dev/vda2 ]; do /bin/busybox sleep 0.1; done
# The journal of ext4 is played back here: a board loses power whenever it likes.
/bin/busybox mount -t ext4 /dev/vda2 /new
init=/sbin/init
for word in $(/bin/busybox cat /proc/cmdline); do
  case $word in init=*) init=${word#init=} ;; esac
done
exec /bin/busybox switch_root /new $init
"""


def blank(target: Path) -> Path:
    """Write the card's image to `target` as its maker sells it: nobody has prepared it yet."""
    system = emulation.folder()
    with target.open("wb") as image:
        image.truncate(ROOT_OFFSET + ROOT_MB * 2**20)
    layout = (
        f"label: dos\nstart={BOOT_START},size={BOOT_SECTORS},type=c,bootable\n"
        f"start={ROOT_START},type=83\n"
    )
    run("sfdisk", "-q", target, input=layout.encode())
    run(
        "mkfs.vfat",
        "-F",
        "32",
        "-s",
        "1",
        "-n",
        "BOOTFS",
        "--offset",
        str(BOOT_START),
        target,
        str(BOOT_SECTORS // 2),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in BOOT_FILES.items():
            (folder / file).write_text(text)
            run("mcopy", "-o", "-i", f"{target}@@{BOOT_OFFSET}", folder / file, "::")
        root = _root(system / "root.tar", folder / "root")
        run(
            "mke2fs",
            "-q",
            "-F",
            "-t",
            "ext4",
            "-L",
            "rootfs",
            "-d",
            root,
            "-E",
            f"offset={ROOT_OFFSET}",
            target,
            f"{ROOT_MB}M",
        )
    return target


def boot_file(image: Path, name: str) -> str:
    return run("mtype", "-i", f"{image}@@{BOOT_OFFSET}", f"::{name}").decode()


def make_bookworm(image: Path) -> None:
    """Turn the boot partition of a blank card into one without cloud-init.

    Raspberry Pi OS Bookworm has such a one.
    """
    with tempfile.TemporaryDirectory() as name:
        issue = Path(name) / "issue.txt"
        issue.write_text("Raspberry Pi reference 2025-05-13\n")
        run("mcopy", "-o", "-i", f"{image}@@{BOOT_OFFSET}", issue, "::")
        run(
            "mdel",
            "-i",
            f"{image}@@{BOOT_OFFSET}",
            "::user-data",
            "::meta-data",
            "::network-config",
        )


def as_bookworm_does(image: Path) -> None:
    """Rewrite the files that `fleet card` wrote for Bookworm, as its initramfs does.

    The initramfs does so before anything of it runs.
    """
    with tempfile.TemporaryDirectory() as name:
        run("mcopy", "-i", f"{image}@@{BOOT_OFFSET}", "::cmdline.txt", "::firstrun.sh", name)
        cards.as_bookworm_does(Path(name))
        run(
            "mcopy",
            "-o",
            "-i",
            f"{image}@@{BOOT_OFFSET}",
            f"{name}/cmdline.txt",
            f"{name}/firstrun.sh",
            "::",
        )


def initrd(target: Path) -> Path:
    """Write the initial file system of the kernel.

    It has busybox and the modules of disk, network and file systems.
    """
    system = emulation.folder()
    modules = {
        file.name.partition(".")[0].replace("-", "_"): file
        for file in (system / "kernel").rglob("*.ko*")
    }
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        (tree / "bin").mkdir()
        (tree / "modules").mkdir()
        shutil.copy(system / "busybox/usr/bin/busybox", tree / "bin/busybox")
        order = []
        for module in (name for name in MODULES if name in modules):
            packed = modules[module].read_bytes()
            (tree / "modules" / f"{module}.ko").write_bytes(
                lzma.decompress(packed) if modules[module].suffix == ".xz" else packed
            )
            order.append(f"{module}.ko")
        (tree / "modules/order").write_text("\n".join(order))
        (tree / "init").write_text(INIT)
        (tree / "init").chmod(0o755)
        names = "\n".join(str(path.relative_to(tree)) for path in tree.rglob("*"))
        target.write_bytes(
            run("cpio", "-o", "-H", "newc", "--quiet", cwd=tree, input=names.encode())
        )
    return target


def _root(source: Path, target: Path) -> Path:
    target.mkdir()
    run("tar", "-C", target, "-xpf", source, "--exclude=./dev/*")
    (target / "boot/firmware").mkdir(parents=True, exist_ok=True)
    (target / "etc/cloud/cloud.cfg.d/99_raspberry-pi.cfg").write_text(CLOUD)
    (target / "etc/fstab").write_text(FSTAB)
    (target / "etc/machine-id").write_text("")
    return target
