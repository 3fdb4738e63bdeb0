"""The arm64 system as a root of its own, entered by whoever runs the tests."""

import subprocess
from pathlib import Path

from tests import requirements
from tools.arm64.emulation import succeeded

# ELF, 64 bits, little-endian, a program or library for AArch64, as binfmt_misc takes it.
MAGIC = r"\\x7fELF\\x02\\x01\\x01" + r"\\x00" * 9 + r"\\x02\\x00\\xb7\\x00"
MASK = r"\\xff" * 7 + r"\\x00" + r"\\xff" * 8 + r"\\xfe" + r"\\xff" * 3
# $1 the arm64 system, $2 qemu, $3 the release's folder, $4 the Python in the system, $5 what to do
# there.
ENTER = f"""
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s ":arm64:M::{MAGIC}:{MASK}:$2:OCF" > /proc/sys/fs/binfmt_misc/register
mount -t tmpfs tmpfs "$1/mnt"
mount -t tmpfs tmpfs "$1/tmp"
mkdir "$1/mnt/release" "$1/mnt/opt"
mount --bind "$3" "$1/mnt/release"
mount --rbind /dev "$1/dev"
exec chroot "$1" /bin/sh -euc "$5" "$4"
"""


def run_inside(
    system: Path, release: Path, script: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run a script in the system, `$0` its Python 3.13, and return how it ended.

    The test is skipped where no such system can be entered.

    Args:
        system: the arm64 system's folder.
        release: a folder with a release, which stands at /mnt/release there.
        script: what /bin/sh does there; it has to end well.
        variables: of the environment.
    """
    namespace = (
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--",
        "sh",
        "-euc",
        ENTER,
        "arm64",
    )
    command = [
        *namespace,
        system,
        requirements.program("qemu-aarch64-static"),
        release,
        "/usr/bin/python3.13",
        script,
    ]
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "QEMU_CPU": "cortex-a72",
        "LC_ALL": "C.UTF-8",
        **variables,
    }
    completed = subprocess.run(
        [str(word) for word in command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    succeeded(completed)
    return completed
