"""What emulated boards are made of: the folder of `make_root.sh` and the programs of Debian; and why they cannot be had here, where so."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAMS = ("qemu-system-aarch64", "mke2fs", "sfdisk", "mkfs.vfat", "mcopy", "mtype", "debugfs", "cpio", "xz")
FILES = ("root/usr/bin/python3", "kernel/vmlinuz", "busybox/usr/bin/busybox")
# What mount and the shell print where a user namespace has no binfmt_misc of its own.
NO_BINFMT = re.compile(
    r"mount: .*binfmt_misc: (permission denied|must be superuser|unknown filesystem)|cannot create .*binfmt_misc/register|unshare failed"
)
SYSTEM_FOLDERS = ("/usr/sbin", "/sbin")


def program(name: str) -> str | None:
    """Return where a program is; those for disks lie where only root's PATH leads."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(SYSTEM_FOLDERS))


def missing() -> str | None:
    """Return why no board can be emulated here, None when one can."""
    if os.geteuid() != 0:
        return "the root file system's owners are kept by root only"
    for name in PROGRAMS:
        if program(name) is None:
            return f"{name} is not installed"
    folder = os.environ.get("EDGEMETER_ARM64")
    if not folder:
        return "EDGEMETER_ARM64 names no folder made by tests/arm64/make_root.sh"
    for name in FILES:
        if not (Path(folder) / name).exists():
            return f"there is no {name} in {folder}: run tests/arm64/make_root.sh"
    return None


def folder() -> Path:
    """Return the folder of `make_root.sh`; skip the test where it cannot be used."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    return Path(os.environ["EDGEMETER_ARM64"])


def run(*words: str | Path, **more: object) -> bytes:
    """Run a program of Debian's and return what it printed; the test fails with its words when it fails."""
    found = program(str(words[0]))
    done = subprocess.run([found or str(words[0]), *(str(word) for word in words[1:])], capture_output=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        message = f"{words[0]}: {done.stderr.decode(errors='replace')}{done.stdout.decode(errors='replace')}"
        raise AssertionError(message)
    return bytes(done.stdout)


def succeeded(done: "subprocess.CompletedProcess[str]") -> None:
    """Fail unless a command in the arm64 system ended well; skip where such a system cannot be entered on this machine."""
    if done.returncode != 0 and NO_BINFMT.search(done.stderr):
        pytest.skip(f"no binfmt_misc in a user namespace here (Linux >= 6.7): {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
