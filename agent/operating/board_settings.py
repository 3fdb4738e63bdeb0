"""The power mode of a Jetson (nvpmodel) and the CPU governor: read, checked, written.

It needs nothing but the standard library of Python 3.10: `edgemeter fleet apply` sends it to devices that have no more.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

POWER_MODES = "etc/nvpmodel.conf"
# An SSH session's path may lack the folders of administration.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What the board was set to before a measurement changed it (`restoring.py`): where every user finds it.
DURABLE_RECORD, BOOT_RECORD = "var/lib/edgemeter-restore.json", "run/lock/edgemeter-restore.json"
# So long nvpmodel may still report the mode before.
REPORTED_S, POLL_S = 1.0, 0.1


class SettingError(Exception):
    """A setting cannot be read or written, or a command failed; the message states why and what to do."""


class UnknownSettingError(SettingError):
    """The board has no such mode or governor; the message names those that it has."""


@dataclass(frozen=True)
class PowerMode:
    """A power mode of nvpmodel; `gates` are the parts of the chip that it switches off, which another mode gets back at a boot only."""

    number: str
    name: str
    gates: tuple[str, ...] = ()


def check_as_found(root: Path) -> None:
    """Refuse a board that a measurement has set for its time, or was killed in: what is set now would be put back later."""
    if any((root / path).exists() for path in (DURABLE_RECORD, BOOT_RECORD)):
        raise SettingError("a measurement has changed the settings for its time: run it again later, after `sudo edgemeter doctor` there")


def has_power_modes() -> bool:
    """Return whether the board has the command nvpmodel: a Jetson."""
    return find_command("nvpmodel") is not None


def power_modes(conf: Path) -> list[PowerMode]:
    """Return the modes in an nvpmodel.conf, in its order; none where there is no such file."""
    modes: list[PowerMode] = []
    for line in lines(conf):
        if match := re.match(r"\s*<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)", line):
            modes.append(PowerMode(match[1], match[2]))
        elif modes and re.match(r"\s*\w+_POWER_GATING\s", line):
            modes[-1] = PowerMode(modes[-1].number, modes[-1].name, (*modes[-1].gates, " ".join(line.split())))
    return modes


def power_mode_of(value: str, modes: list[PowerMode]) -> PowerMode:
    """Return the mode with that name or number; raises UnknownSettingError if it is none of `modes`."""
    for mode in modes:
        if value in {mode.name, mode.number}:
            return mode
    names = ", ".join(mode.name for mode in modes)
    raise UnknownSettingError(f"unknown power mode {value!r}: {f'there are {names}' if names else 'none is listed in nvpmodel.conf'}")


def power_mode_now() -> PowerMode:
    """Return the power mode that nvpmodel reports; raises SettingError if it reports none."""
    printed = must("nvpmodel", "-q")
    match = re.search(r"NV Power Mode:\s*(\S+)\s*^(\d+)\s*$", printed, re.MULTILINE)
    if match is None:
        raise SettingError(f"nvpmodel reports no power mode: {last_line(printed)}")
    return PowerMode(match[2], match[1])


def set_power_mode(mode: PowerMode, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
    """Set the power mode; raises SettingError if it needs a boot, or was not taken."""
    completed = run("nvpmodel", "-m", mode.number)
    printed, status = (completed.stdout + completed.stderr).strip(), completed.returncode
    asks = re.search("reboot", printed, re.IGNORECASE)
    # In a container nvpmodel notes the mode and changes nothing.
    is_ignored = "ignoring request" in printed
    until_s = clock() + (0 if asks else REPORTED_S)
    now: PowerMode | None = None
    while status == 0 and not is_ignored and (now is None or clock() < until_s):
        if (now := power_mode_now()).number == mode.number:
            return
        sleep(0 if asks else POLL_S)
    if (asks and status >= 0) or (status == 0 and not printed):
        raise SettingError(
            f"the board changes to power mode {mode.name!r} only at a boot: `sudo nvpmodel -m {mode.number}` there, and answer yes"
        )
    if now is not None:
        raise SettingError(f"nvpmodel does not set power mode {mode.name!r}, and reports {now.name!r}: {last_line(printed)}")
    ended = f"it was ended by signal {-status}" if status < 0 else f"it ended with status {status}"
    how = last_line(printed) if printed and status >= 0 else ended
    remedy = ": run it outside of a container" if is_ignored else ": run it as root" if os.geteuid() != 0 else ""
    raise SettingError(f"nvpmodel does not set power mode {mode.name!r}: {how}{remedy}")


def governor_files(sysfs: Path) -> list[Path]:
    """Return the files of the CPU governor, one for each policy; none where the kernel has no governors."""
    cpus = sysfs / "devices/system/cpu"
    return sorted(cpus.glob("cpufreq/policy*/scaling_governor")) or sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_governor"))


def check_governor(files: list[Path], governor: str) -> None:
    """Check that each of the files takes a governor; raises UnknownSettingError if it does not."""
    for path in files:
        available = " ".join(lines(path.with_name("scaling_available_governors"))).split()
        if (available and governor not in available) or not re.fullmatch(r"[a-z_]+", governor):
            names = ", ".join(available)
            raise UnknownSettingError(f"unknown governor {governor!r}: {f'there are {names}' if names else 'the kernel lists none'}")


def write(path: Path, text: str) -> None:
    """Write to a file of the kernel; raises SettingError if it refuses."""
    try:
        # Nothing is created: a file that is not there is no setting.
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{text}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SettingError(f"cannot write {text!r} to {str(path)!r}: {error.strerror}") from error


def find_command(name: str) -> str | None:
    """Return where a command is, None if the board has none of that name."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{PATH}")


def run(*command: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run a command with empty input and return its result; raises SettingError if it is not there, or takes longer.

    It runs to its end even where this process is interrupted or killed: a board would be left between two modes. It inherits the
    descriptors that are inheritable, so that a lock of this process is held until then.
    """
    # In memory: the disk may be full, or the folder for such files removed. Not pipes, which break when this process is gone.
    with os.fdopen(os.memfd_create("out"), "w+b") as out, os.fdopen(os.memfd_create("err"), "w+b") as err:
        try:
            process = subprocess.Popen(
                [find_command(command[0]) or command[0], *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                close_fds=False,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError as error:
            raise SettingError(f"there is no {command[0]!r} here") from error
        except OSError as error:
            raise SettingError(f"cannot run {command[0]!r}: {error.strerror}") from error
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise SettingError(f"`{' '.join(command[:3])}` did not end within {timeout_s:g} s") from error
        except BaseException:
            process.wait(timeout_s)
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return subprocess.CompletedProcess(command, process.returncode, *texts)


def must(*command: str, timeout_s: float = 120.0) -> str:
    """Return what a command printed; raises SettingError if it fails."""
    completed = run(*command, timeout_s=timeout_s)
    if completed.returncode != 0:
        raise SettingError(f"`{' '.join(command[:3])}` failed: {last_line(completed.stderr or completed.stdout)}")
    return completed.stdout


def lines(path: Path) -> list[str]:
    """Return the lines of a file; none if it does not exist."""
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def last_line(text: str) -> str:
    """Return the last line that is not blank."""
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["no message"])[-1][:300]
