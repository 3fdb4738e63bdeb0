"""Sets up a board as root.

It sets up the agent's user, its release, units, rules and identity, and the owners of its files,
and starts the agent. `edgemeter fleet apply` sends it over standard input after a line `PLAN =
...`; at a card's first boot, `firstboot.sh` passes the plan as an argument. It needs only Python >=
3.10. Each step checks first and acts only if something differs, so it may be repeated and
interrupted; it prints one JSON line per step: its name, its state, and a detail.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

USER = "edgemeter"
# The groups that own accelerators, GPUs and buses on various boards.
DEVICE_GROUPS = ("video", "render", "gpio", "spi", "dialout", "plugdev", "apex")
AGENT, SUPERVISOR = "edgemeter-agent.service", "edgemeter-supervisor.service"
SUPERVISOR_DROP_IN = "[Service]\nExecStart=\nExecStart={} /opt/edgemeter/proven/supervisor.py\n"
# An SSH session's path may lack the folders of administration.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Longer than an update's switch holds the lock; a measurement may hold it longer.
LOCK_S = 20.0
# The installer unpacks a hundred megabytes on a slow card.
INSTALL_S = 1800.0
# `steps` are names of methods; `install` is the command that installs the release, which reads
# `installer`; `release` and `is_newer` describe what it replaces. The text `join` is a join file
# with a new token; without it, `join_file` is the path of one on the board.
DEFAULTS: dict[str, Any] = {
    "prefix": "",
    "dry": False,
    "public_key": "",
    "install": None,
    "installer": "",
    "release": "",
    "is_newer": False,
    "python": "/usr/bin/python3",
    "join": None,
    "join_file": None,
    "join_s": 600.0,
    "rejoin": False,
}


class StepError(Exception):
    """A step failed; the message has the reason and the remedy."""


StepResult = tuple[str, str]


class LocalDevice:
    """The device, seen from inside; every path is below `prefix`."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = {**DEFAULTS, **plan}
        self.is_dry: bool = self.plan["dry"]
        self.prefix: str = self.plan["prefix"]
        self.root, self.home = self.below("/opt/edgemeter"), self.below("/var/lib/edgemeter")
        self.etc, self.systemd = self.below("/etc/edgemeter"), self.below("/etc/systemd/system")
        # Records, across an interruption and until the next boot, that the running agent is not the
        # installed one.
        self.restart = self.below("/run/edgemeter-apply-restart")

    def below(self, path: str) -> Path:
        return Path(self.prefix + path)

    def do(self, *command: str, timeout_s: float = 120.0, stdin: str = "") -> None:
        """Run a command, except in a dry run; raises StepError if it fails."""
        if (
            not self.is_dry
            and (completed := run(*command, timeout_s=timeout_s, stdin=stdin)).returncode != 0
        ):
            words = " ".join((Path(command[0]).name, *command[1:3]))
            raise StepError(f"`{words}` failed: {last_line(completed.stderr or completed.stdout)}")

    def put(self, path: Path, content: bytes, mode: int = 0o644) -> bool:
        """Write `content` to `path`, and return whether it changed.

        The agent has to be restarted after a change.
        """
        with contextlib.suppress(FileNotFoundError):
            if path.read_bytes() == content and path.stat().st_mode & 0o777 == mode:
                return False
        if not self.is_dry:
            self.mark()
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(path.name + ".new")
            # Never readable by more users than at the end, not even for a moment.
            with open(  # noqa: PTH123 - of a descriptor
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb"
            ) as file:
                os.fchmod(file.fileno(), mode)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        return True

    def mark(self) -> None:
        """Record that the agent has to be restarted."""
        if not self.is_dry:
            self.restart.parent.mkdir(parents=True, exist_ok=True)
            self.restart.touch()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Hold the agent's run lock for the block, so that no measurement runs meanwhile."""
        until_s, board = time.monotonic() + LOCK_S, self.below("/run/lock/edgemeter-run.lock")
        path = board if board.parent.is_dir() else self.home / "run.lock"
        if self.is_dry or not path.parent.is_dir():
            yield
            return
        # Every user may lock it; other users' files may not be opened with O_CREAT
        # (fs.protected_regular).
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            os.fchmod(descriptor, 0o666)
            os.close(descriptor)
        with os.fdopen(
            os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb"
        ) as lock:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > until_s:
                    raise StepError(
                        "a measurement is going on there and must not be disturbed: run "
                        "it again later"
                    )
                time.sleep(0.2)
            yield

    def user(self) -> StepResult:
        """Create the agent's user, and add it to the groups of devices."""
        accounts, groups = self.below("/etc/passwd"), self.below("/etc/group")
        if not accounts.is_file():
            return "skipped", "no accounts below the prefix"
        where = ["--prefix", self.prefix] if self.prefix else []
        members = {
            line.split(":")[0]: line.split(":")[-1].split(",")
            for line in groups.read_text().splitlines()
        }
        changed = []
        if not any(line.startswith(f"{USER}:") for line in accounts.read_text().splitlines()):
            changed.append(f"user {USER}")
            group = ["--gid", USER] if USER in members else ["--user-group"]
            home = [
                "--home-dir",
                "/var/lib/edgemeter",
                "--no-create-home",
                "--shell",
                "/usr/sbin/nologin",
            ]
            self.do("useradd", *where, "--system", *group, *home, USER)
        lacking = [name for name in DEVICE_GROUPS if name in members and USER not in members[name]]
        if lacking:
            changed.append("groups " + " ".join(lacking))
            self.mark()
            self.do("usermod", *where, "--append", "--groups", ",".join(lacking), USER)
        return outcome(changed)

    def release(self) -> StepResult:
        """Install the copied release and make it current, if the device needs it."""
        changed = (
            ["release.pub"]
            if self.put(self.root / "release.pub", self.plan["public_key"].encode())
            else []
        )
        if self.plan["install"]:
            changed.append(self.plan["release"])
            self.mark()
            with self.quiet():
                self.do(*self.plan["install"], timeout_s=INSTALL_S, stdin=self.plan["installer"])
        return ("skipped", self.plan["release"]) if self.plan["is_newer"] else outcome(changed)

    def units(self) -> StepResult:
        """Write the units and udev rules of the release, and enable the units.

        The rules are applied to attached devices.
        """
        changed = ["those of the release"] if self.is_dry and self.plan["install"] else []
        for pattern, folder in (
            ()
            if changed
            else (("*.service", self.systemd), ("*.rules", self.below("/etc/udev/rules.d")))
        ):
            files = sorted((self.root / "current/units").glob(pattern))
            changed += [
                file.name for file in files if self.put(folder / file.name, file.read_bytes())
            ]
        drop_in = SUPERVISOR_DROP_IN.format(self.plan["python"]).encode()
        if self.put(self.systemd / f"{SUPERVISOR}.d" / "python.conf", drop_in):
            changed.append("the supervisor's Python")
        if self.restart.exists() and self.below("/run/udev/control").exists():
            self.do("udevadm", "control", "--reload")
            for subsystem in ("usb", "apex", "powercap", "hwmon"):
                self.do("udevadm", "trigger", f"--subsystem-match={subsystem}", "--action=change")
        if not shutil.which("systemctl"):
            return outcome(changed, "no systemd here: nothing is enabled")
        where = [f"--root={self.prefix}"] if self.prefix else []
        disabled = [
            unit
            for unit in (AGENT, SUPERVISOR)
            if run("systemctl", *where, "is-enabled", unit).stdout.strip() != "enabled"
        ]
        if disabled:
            # This reloads the units, too.
            self.do("systemctl", *where, "enable", *disabled)
        return outcome([*changed, *(f"enabled {unit}" for unit in disabled)])

    def join(self) -> StepResult:
        """Give the device its identity and configuration."""
        if (self.home / "joined").exists() and not self.plan["rejoin"]:
            return "ok", "joined"
        if self.is_dry:
            return "changed", "would join"
        if not self.plan["join"] and not self.plan["join_file"]:
            return "skipped", "has not joined"
        path = Path(self.plan["join_file"] or self.etc / "join.toml")
        self.etc.mkdir(parents=True, exist_ok=True)
        if self.plan["join"]:
            self.put(path, self.plan["join"].encode(), 0o600)
        join_s = self.plan["join_s"]
        where = [
            "--home",
            str(self.home),
            "--config",
            str(self.etc / "config.toml"),
            "--timeout",
            str(join_s),
        ]
        # All of the above is on the disk before the board is marked as joined.
        os.sync()
        try:
            self.do(
                str(self.root / "current/bin/edgemeter"),
                "agent",
                "join",
                str(path),
                *where,
                timeout_s=join_s + 60,
            )
        finally:
            # The token is used, or expires within the hour.
            if self.plan["join"]:
                path.unlink()
        self.mark()
        return "changed", "joined"

    def owner(self) -> StepResult:
        """Give the agent's folder to the agent's user."""
        if not self.is_dry:
            self.home.mkdir(mode=0o750, parents=True, exist_ok=True)
        foreign = run("find", str(self.home), "!", "-user", USER).stdout.splitlines()
        if foreign:
            # It follows no link: the agent, which may write there, must not redirect root.
            self.do("chown", "-R", "-h", f"{USER}:{USER}", str(self.home))
        return outcome([f"{len(foreign)} files"] if foreign else [])

    def start(self) -> StepResult:
        """Start the agent and its supervisor, or restart them with the installed release."""
        if not self.below("/run/systemd/system").is_dir():
            return "skipped", "no systemd is running here: nothing is started"
        idle = [
            unit
            for unit in (SUPERVISOR, AGENT)
            if run("systemctl", "is-active", unit).stdout.strip() != "active"
        ]
        if not idle and not self.restart.exists():
            return "ok", "running"
        with self.quiet():
            self.do("systemctl", "daemon-reload")
            for unit in () if self.is_dry else (SUPERVISOR, AGENT):
                completed = run("systemctl", "restart", unit, timeout_s=400)
                if completed.returncode != 0:
                    log = run("journalctl", "-u", unit, "-n", "3", "-o", "cat").stdout
                    raise StepError(
                        f"{unit} does not start ({last_line(log or completed.stderr)}): see "
                        f"`journalctl -u {unit}` there"
                    )
            if not self.is_dry:
                self.restart.unlink(missing_ok=True)
        return "changed", "started" if idle else "restarted"


def outcome(changed: list[str], why: str = "") -> StepResult:
    """Return the result of a step that changed these things; `why` is a note on omissions."""
    return ("changed" if changed else "ok"), "; ".join(filter(None, [", ".join(changed), why]))


def run(
    *command: str, timeout_s: float = 120.0, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run a command; raises StepError if it cannot, or takes too long."""
    try:
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, errors="replace", check=False,
            timeout=timeout_s, start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepError(f"cannot run `{' '.join(command[:3])}`: {error}") from error


def last_line(text: str) -> str:
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["no message"])[-1][
        :300
    ]


def main(plan: dict[str, Any]) -> int:
    """Run the steps of `plan` in order, up to the first that fails; return 1 if one did."""
    os.environ.update(PATH=f"{os.environ.get('PATH', '')}:{PATH}", LC_ALL="C")
    for name in plan["steps"]:
        try:
            step: Callable[[], StepResult] = getattr(LocalDevice(plan), name)
            state, detail = step()
        except StepError as error:
            state, detail = "failed", str(error)
        except OSError as error:
            state, detail = "failed", f"{error.strerror}: {error.filename}"
        print(  # noqa: T201 - its output
            json.dumps({"step": name, "state": state, "detail": detail}), flush=True
        )
        if state == "failed":
            sys.stderr.write(f"{detail}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(globals().get("PLAN") or json.loads(sys.argv[1])))
