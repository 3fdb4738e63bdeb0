"""The power mode of a Jetson (nvpmodel) and the CPU governor: read, checked, written."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

# The settings before a measurement changed the board (`changed_board.py`).
RECORD = "var/lib/edgemeter-restore.json"
# The path of an SSH session may lack these.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class SettingError(Exception):
    """A setting is unknown, or cannot be read or written; the message states why and what to do."""


def power_mode_of(value: str, root: Path) -> str:
    """Return the number of a power mode by name or number.

    Raises:
        SettingError: there is none; the message has all names.
    """
    conf = root / "etc/nvpmodel.conf"
    text = conf.read_text(errors="replace") if conf.exists() else ""
    modes = re.findall(r"^\s*<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)", text, re.MULTILINE)
    for mode in modes:
        if value in mode:
            return str(mode[0])
    names = ", ".join(name for _, name in modes)
    raise SettingError(
        f"unknown power mode {value!r}: there "
        f"{f'are {names}' if names else 'is no nvpmodel.conf, which a Jetson has'}"
    )


def power_mode_now() -> tuple[str, str]:
    """Return number and name of the power mode that nvpmodel reports.

    Raises:
        SettingError: it reports none.
    """
    completed = run("nvpmodel", "-q")
    match = re.search(r"NV Power Mode:\s*(\S+)\s*^(\d+)\s*$", completed.stdout, re.MULTILINE)
    if match is None:
        raise SettingError(
            f"nvpmodel reports no power mode: {last_line(completed.stdout + completed.stderr)}"
        )
    return match[2], match[1]


def set_power_mode(number: str) -> None:
    """Set the power mode; raises SettingError if that needs a reboot or fails."""
    completed = run("nvpmodel", "-m", number)
    printed = completed.stdout + completed.stderr
    # In a container nvpmodel records the mode, but changes nothing.
    is_accepted = completed.returncode == 0 and "ignoring request" not in printed
    if is_accepted and power_mode_now()[0] == number:
        return
    remedy = (
        f"it needs a reboot: `sudo nvpmodel -m {number}`, and answer yes"
        if is_accepted or re.search("reboot", printed, re.IGNORECASE)
        else "run it as root, outside of a container"
    )
    raise SettingError(
        f"nvpmodel does not set power mode {number} (status {completed.returncode}: "
        f"{last_line(printed)}): {remedy}"
    )


def governor_files(sysfs: Path) -> list[Path]:
    """Return the files of the CPU governor, one for each policy.

    Empty if the kernel has no governors.
    """
    return sorted(sysfs.glob("devices/system/cpu/cpufreq/policy*/scaling_governor"))


def check_governor(files: list[Path], governor: str) -> None:
    """Raise SettingError, with all names, unless there are files and each accepts the governor."""
    if not files:
        raise SettingError(
            f"governor = {governor!r}: the kernel has no CPU governors, as in a virtual machine"
        )
    for path in files:
        listed = path.with_name("scaling_available_governors")
        names = listed.read_text().split() if listed.exists() else []
        if (names and governor not in names) or not re.fullmatch(r"[a-z_]+", governor):
            raise SettingError(
                f"unknown governor {governor!r}: there are "
                f"{', '.join(names) or 'none that the kernel lists'}"
            )


def write(path: Path, text: str) -> None:
    """Write to an existing file of the kernel; raises SettingError if it refuses."""
    try:
        # `open` gets a descriptor.
        with open(os.open(path, os.O_WRONLY | os.O_TRUNC), "w") as file:  # noqa: PTH123
            file.write(f"{text}\n")
    except OSError as error:
        raise SettingError(f"cannot write {text!r} to {str(path)!r}: {error.strerror}") from error


def run(*command: str, timeout_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
    """Run a command with this process's inheritable descriptors.

    Raises:
        SettingError: it cannot run, or takes too long.
    """
    import subprocess  # noqa: PLC0415 - most commands change no setting

    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{PATH}", "LC_ALL": "C"}
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            check=False, timeout=timeout_s, close_fds=False, start_new_session=True,
            env=environment,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SettingError(f"cannot run `{' '.join(command[:3])}`: {error}") from error


def last_line(text: str) -> str:
    """Return the last line that is not blank."""
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["no message"])[-1][
        :300
    ]
