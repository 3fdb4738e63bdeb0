"""The supervisor of a device: installs a release and rolls it back if it is not healthy.

A script for Python 3.8 and later.

It runs as `ROOT/proven/supervisor.py`, with only the device's Python and the `install.py` next to
it, so that it works whatever is wrong with a release; the link `proven` names the release that last
ran healthily, never one on trial. It runs as root next to the agent and trusts the agent only for
the choice of an update: `install.py` verifies signature and files with the public key that came
with the device. The agent's requests are files in `HOME/update`, which are only read here:

    wanted.json     the update request
    withdrawn.json  the request that is withdrawn
    healthy.json    the agent's health report
    reboot          the boot in which the agent wants a reboot

and reads `ROOT/supervisor/journal.json`, which is written atomically before each step, so that
after a kill or a power cut at any moment it continues there: the `update` in progress, the
`outcome` of the last one, and the `bad` versions, which failed here. The steps are `taken` (waits
for the end of the measurement), `installing` (next to the running release), `trying` (the new
release runs and has to report that it is healthy), `going back` (rollback to the previous release)
and `ended` (the disk is put in order). An interrupted installation is resumed, after a pause that
grows, until it ends or is withdrawn; a trial that the board itself did not survive is repeated
once.

The run lock of the board, /run/lock/edgemeter-run.lock, is held by whatever measures, and here for
a switch or a reboot.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgemeter.provisioning.release import install

    Record = dict[str, Any]
else:
    # A power cut could leave half of the bytecode.
    sys.dont_write_bytecode = True
    import install

logger = logging.getLogger("edgemeter-supervisor")

UNIT = "edgemeter-agent.service"
LARGEST_FILE_BYTES = 64 << 10
OPTIONS: dict[str, Any] = {
    "root": Path("/opt/edgemeter"),
    "home": Path(os.environ.get("EDGEMETER_HOME") or "/var/lib/edgemeter"),
    "restart_command": f"systemctl --no-block restart {UNIT}",
    # Prints the number of failed starts.
    "starts_command": f"systemctl show --property=NRestarts --value {UNIT}",
    "reboot_command": "systemctl reboot",
    # A file whose content changes with each boot.
    "boot_id": Path("/proc/sys/kernel/random/boot_id"),
    # The least time for a release to become healthy, longer on a slow card; and how long it has to
    # keep running then.
    "healthy_within_s": 300.0,
    "settle_s": 30.0,
    # How long to wait after the first interruption of an installation.
    "first_pause_s": 1.0,
    "failed_starts": 5,
    "count_every_s": 60.0,
    "every_s": 1.0,
}
# Held by every measurement on this board; a relative path is in the home folder.
RUN_LOCK = os.environ.get("EDGEMETER_RUN_LOCK") or "/run/lock/edgemeter-run.lock"
# How long to wait for the end of a measurement, and of an installation.
BLOCKED_AFTER_S, INSTALL_S = 6 * 3600.0, 1800.0
# A release is tried in this many boots, and is bad after this many failures that may not be its
# own.
MOST_TRIES = 2
# The longest pause before an installation that keeps interrupting the board is resumed.
LONGEST_PAUSE_S = 3600.0
# A release has this many times as long to become healthy as this board took to install it and to
# import the previous one.
SLOW_FACTOR, LONGEST_TRIAL_S = 3.0, 3600.0
# Starts that fail within this time are one loop, not occasional accidents.
LOOP_S = 1800.0
FORMS = {
    "job": r"[a-z0-9][a-z0-9-]{0,63}",
    "attempt": r"[1-9][0-9]{0,3}",
    "version": install.FORMS["version"],
    "sha256": install.FILE_FORMS["sha256"],
    "size_bytes": r"[1-9][0-9]{0,12}",
    "timeout_s": r"[1-9][0-9]{0,5}",
    "even_if": r"|older",
}


def read_plain(path: Path) -> bytes:
    """Return the content of a file that an unprivileged user may write, if it exists.

    It follows no link and waits for no pipe.
    """
    try:
        descriptor = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return (
            os.read(descriptor, LARGEST_FILE_BYTES)
            if stat.S_ISREG(os.fstat(descriptor).st_mode)
            else b""
        )
    finally:
        os.close(descriptor)


def parse_record(content: bytes) -> Record:
    """Return the JSON object; empty if it is not one."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def pause(seconds: float) -> None:
    """Sleep, and keep the watchdog of the service manager alive."""
    notify("WATCHDOG=1")
    time.sleep(seconds)


def notify(state: str) -> None:
    """Notify the service manager. Source: sd_notify(3)."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if name.startswith(("/", "@")):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            channel = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            channel.sendto(state.encode(), "\0" + name[1:] if name.startswith("@") else name)


def lock_within(descriptor: int, patience_s: float, every_s: float) -> bool:
    """Lock the file, retrying for `patience_s`; return whether it is locked."""
    until_s = time.monotonic() + patience_s
    while True:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= until_s:
            return False
        pause(every_s)


def run(command: list[str], log: Path, patience_s: float) -> tuple[int | None, str]:
    """Run the command; return its status, None if it did not end by itself, and its last line.

    It is killed after `patience_s`.
    """
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
        until_s = time.monotonic() + patience_s
        while process.poll() is None and time.monotonic() < until_s:
            pause(0.1)
        if process.poll() is None:
            process.kill()
            process.wait()
            return None, f"{command[0]} took longer than {patience_s:.0f} s"
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError as error:
        return None, f"cannot run {command[0]!r}: {error}"
    return process.returncode, lines[-1][
        -500:
    ] if lines else f"{command[0]} ended with status {process.returncode} and printed nothing"


class Supervisor:
    """One device's supervisor; `poll` is called repeatedly.

    It raises OSError if the disk fails, and a new one continues.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.releases, self.own = options.root / "releases", options.root / "supervisor"
        self.own.mkdir(mode=0o755, exist_ok=True)
        self.requests = options.home / "update"
        with contextlib.suppress(FileExistsError):
            self.requests.mkdir(mode=0o750)
            home = options.home.stat()
            os.chown(str(self.requests), home.st_uid, home.st_gid, follow_symlinks=False)
        # The agent, who may not write in every /run/lock, finds it there.
        os.close(self._open_run_lock())
        # The failed starts to count from, and since when.
        self._starts: tuple[int, float] | None = None
        self._loop = f"the agent was started {options.failed_starts} times and ended each time"
        self._counted_s = 0.0
        self._has_rebooted = False
        self._began_s = time.monotonic()
        self.journal = parse_record(read_plain(self.own / "journal.json"))
        if not (self.own / "journal.json").exists():
            # A request that is there already was for another installation.
            self._write(
                request=hashlib.sha256(read_plain(self.requests / "wanted.json")).hexdigest()
            )
        update = self.journal.get("update")
        if update and update["step"] == "installing":
            self._write(update={**update, "interrupted": update.get("interrupted", 0) + 1})
            logger.info(
                "the installation of %s was interrupted, resuming", update["order"]["version"]
            )

    def poll(self) -> None:
        """Do the work that is due.

        It continues an update, begins a requested one, reboots, or rolls back an agent that does
        not start.
        """
        request = read_plain(self.requests / "wanted.json")
        if self.journal.get("update"):
            if not self._rests():
                self._go_on()
        elif request and hashlib.sha256(request).hexdigest() != self.journal.get("request"):
            self._take(request)
        elif self._wants_reboot():
            with self._quiet(0.0) as is_quiet:
                if is_quiet:
                    self._has_rebooted = True
                    self._call(self.options.reboot_command)
        elif self._current() is None:
            self._roll_back_from(None, "there was no release at `current`")
        elif time.monotonic() - self._counted_s > self.options.count_every_s:
            self._counted_s = time.monotonic()
            report = self._report()
            if self._is_looping(
                is_healthy=report.get("state") == "healthy" and _is_running(report)
            ):
                self._roll_back_from(self._current(), self._loop)

    def _write(self, **changes: Any) -> None:
        journal = {**self.journal, **changes}
        install.write(self.own / "journal.json", json.dumps(journal, indent=1).encode())
        self.journal = journal

    def _current(self) -> str | None:
        """Return the version that `current` names, None if it cannot run."""
        version = install.linked(self.options.root)
        return version if version is not None and self._can_run(version) else None

    def _can_run(self, version: str) -> bool:
        """Return whether that release is installed: an installation writes the manifest last."""
        path = self.releases / version
        return (
            re.fullmatch(FORMS["version"], version) is not None
            and (path / install.MANIFEST).exists()
            and (path / "bin/python").exists()
        )

    def _installed(self) -> list[str]:
        """Return the installed versions, newest installation first."""
        try:
            paths = [path for path in self.releases.iterdir() if self._can_run(path.name)]
        except OSError:
            return []
        return [
            path.name for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
        ]

    def _built_ns(self, version: str | None) -> int:
        """Return when that release was built, 0 if it is not installed."""
        if version is None or not self._can_run(version):
            return 0
        return int(
            parse_record((self.releases / version / install.MANIFEST).read_bytes()).get(
                "built_ns", 0
            )
        )

    def _end(self, update: Record, state: str, reason: str, failure: Record | None = None) -> None:
        logger.info("%s: %s", state, reason)
        order = update["order"]
        attempt = int(order["attempt"]) if order.get("attempt") else None
        outcome = {
            "job": order.get("job"),
            "attempt": attempt,
            "version": order.get("version"),
            "from": update["from"],
        }
        outcome.update(state=state, reason=reason, ended_ns=time.time_ns())
        self._write(
            update={"step": "ended", "order": order, "outcome": outcome, "failure": failure}
        )

    def _take(self, content: bytes) -> None:
        request, last = parse_record(content), self.journal.get("outcome", {})
        # Only fields of the right form are used.
        order = {
            name: str(request[name])
            for name, form in FORMS.items()
            if name in request and re.fullmatch(form, str(request[name]))
        }
        # Written with the result.
        self.journal["request"] = hashlib.sha256(content).hexdigest()
        if not request or (order.get("job"), order.get("attempt")) == (
            last.get("job"),
            str(last.get("attempt")),
        ):
            self._write()
            return
        update = {
            "step": "taken",
            "order": order,
            "from": self._current(),
            "was_installed": self._can_run(order.get("version", "")),
        }
        wrong = sorted((set(request) | set(FORMS)) - set(order))
        if wrong:
            self._end(
                update,
                "failed",
                "not an update request: unknown, missing or wrong fields: "
                f"{', '.join(wrong)[:200]}",
            )
        elif order["version"] == update["from"]:
            self._end(update, "done", f"version {order['version']} runs already")
        else:
            self._write(update=update)

    def _bad(self, version: str | None) -> Record:
        """Return the entry of a version that failed here, empty for any other."""
        failure: Record = self.journal.get("bad", {}).get(version, {})
        return failure

    def _rests(self) -> bool:
        """Return whether to wait before an interrupted installation is resumed.

        It waits at first a second, then twice as long each time.
        """
        update = self.journal["update"]
        interrupted = update.get("interrupted", 0) if update["step"] == "installing" else 0
        if interrupted == 0 or self._is_withdrawn(update):
            return False
        pause_s: float = min(
            self.options.first_pause_s * 2.0 ** min(interrupted - 1, 20), LONGEST_PAUSE_S
        )
        return time.monotonic() - self._began_s < pause_s

    def _is_withdrawn(self, update: Record) -> bool:
        request = parse_record(read_plain(self.requests / "withdrawn.json"))
        return all(
            str(request.get(name)) == update["order"].get(name) for name in ("job", "attempt")
        )

    def _go_on(self) -> None:
        update, patience_s = self.journal["update"], BLOCKED_AFTER_S
        if update["step"] == "taken":
            patience_s = min(patience_s, float(update["order"]["timeout_s"]))
        with self._quiet(patience_s if update["step"] != "ended" else 0.0) as is_quiet:
            if update["step"] == "taken" and not is_quiet:
                self._end(
                    update,
                    "failed",
                    f"blocked by run: a measurement was going on for {patience_s:.0f} s",
                )
            # A trial that has begun is completed, even if the lock is never released.
            while self.journal["update"]:
                {
                    "taken": self._install,
                    "installing": self._install,
                    "trying": self._try,
                    "going back": self._roll_back,
                    "ended": self._finish,
                }[self.journal["update"]["step"]](self.journal["update"])

    def _install(self, update: Record) -> None:
        """Install the release next to the running one.

        An InterruptedError leaves the step as it is, to be resumed.
        """
        order, version = update["order"], update["order"]["version"]
        self._write(update={**update, "step": "installing"})
        try:
            self._refuse_withdrawn(update)
            self._make_room(order)
            began_s = time.monotonic()
            self._build(order)
            self._refuse_withdrawn(update)
        except InterruptedError:
            raise
        except (install.RefusedError, OSError) as error:
            why = (
                f"cannot install version {version}: {error.strerror or error}"
                if isinstance(error, OSError)
                else str(error)
            )
            if not update["was_installed"] or not self._can_run(version):
                shutil.rmtree(str(self.releases / version), ignore_errors=True)
            shutil.rmtree(str(self.options.root / ".incoming"), ignore_errors=True)
            self._end(update, "failed", why)
        else:
            # How long the imports of the running release took, if it reports such a time.
            reported_s = self._report().get("imports_s")
            imports_s = (
                reported_s
                if isinstance(reported_s, (int, float)) and 0 < reported_s <= LONGEST_TRIAL_S
                else 0.0
            )
            slow_s = SLOW_FACTOR * (time.monotonic() - began_s + imports_s)
            within_s = max(self.options.healthy_within_s, min(slow_s, LONGEST_TRIAL_S))
            self._write(update={**update, "step": "trying", "tries": 0, "within_s": within_s})

    def _refuse_withdrawn(self, update: Record) -> None:
        if self._is_withdrawn(update):
            install.refuse(f"the update to {update['order']['version']} was withdrawn")

    def _make_room(self, order: Record) -> None:
        """Remove the release before the running one, if there is no room for another.

        The new one needs about as much room as the running one.
        """
        current = self._current()
        running_bytes = (
            sum(path.lstat().st_blocks * 512 for path in (self.releases / current).rglob("*"))
            if current
            else 0
        )
        if (
            shutil.disk_usage(str(self.options.root)).free
            < int(order["size_bytes"]) + running_bytes
        ):
            install.prune(self.options.root, order["version"])

    def _build(self, order: Record) -> None:
        root, version, release = (
            self.options.root,
            order["version"],
            self.options.home / "content" / order["sha256"],
        )
        if not stat.S_ISREG(release.lstat().st_mode):
            install.refuse(
                f"the release {order['sha256'][:12]} is not a plain file in the device's content"
            )
        command = [sys.executable, root / "proven/install.py", "--release", release, "--root", root]
        command += ["--switch", "no", "--expect-version", version]
        command += ["--allow-downgrade"] if "older" in order["even_if"] else []
        status, output = run([str(word) for word in command], self.own / "install.log", INSTALL_S)
        if status is not None and status < 0:
            raise InterruptedError(f"the installation of {version} was killed by signal {-status}")
        if status != 0 or not self._can_run(version):
            install.refuse(f"version {version} cannot be installed: {output}")

    def _try(self, update: Record) -> None:
        """Start the release and wait for its health.

        A killed supervisor continues to wait; after a reboot the release is started again.
        """
        version, boot = update["order"]["version"], self.options.boot_id.read_text()
        if update.get("boot") != boot:
            if update["tries"] == MOST_TRIES:
                self._write(
                    update={
                        **update,
                        "step": "going back",
                        "reason": f"{MOST_TRIES} times the board went down while it was tried",
                    }
                )
                return
            update = {**update, "tries": update["tries"] + 1, "boot": boot, "until_s": None}
            self._write(update=update)
        if update["until_s"] is None:
            install.link(self.options.root, version)
            self._call(self.options.restart_command)
            update = {
                **update,
                "until_s": time.clock_gettime(time.CLOCK_BOOTTIME) + update["within_s"],
            }
            self._write(update=update)
        why = self._why_unhealthy(update)
        if why is None:
            self._end(update, "done", f"version {version} runs and is healthy")
        else:
            self._write(update={**update, "step": "going back", "reason": why})

    def _why_unhealthy(self, update: Record) -> str | None:
        """Return None once the release has reported that it is healthy; else the reason.

        It must also have kept running for a while.
        """
        version, healthy_s, why = update["order"]["version"], None, "it never reported its health"
        self._starts = None
        while True:
            report = self._report()
            # An earlier trial may have left one, too.
            runs = report.get("release") == version and _is_running(report)
            if runs and report.get("state") != "healthy":
                why = str(report.get("reason") or "it gives no reason")[:500]
                if report.get("state") == "broken":
                    return why
            if runs and report.get("state") == "healthy":
                why = "it reported that it is healthy, and then ended"
                healthy_s = healthy_s or time.monotonic()
                if time.monotonic() - healthy_s >= self.options.settle_s:
                    return None
            else:
                healthy_s = None
            # A report of health between two starts excuses neither.
            if self._is_looping(is_healthy=False):
                return self._loop
            if healthy_s is None and time.clock_gettime(time.CLOCK_BOOTTIME) > update["until_s"]:
                return f"it was not healthy within {update['within_s']:.0f} s: {why}"
            pause(self.options.every_s)

    def _report(self) -> Record:
        return parse_record(read_plain(self.requests / "healthy.json"))

    def _roll_back(self, update: Record) -> None:
        if update["from"] is not None:
            install.link(self.options.root, update["from"])
            self._call(self.options.restart_command)
            self._starts = None
        attempts, reason = (
            self._bad(update["order"]["version"]).get("attempts", 0) + 1,
            update["reason"],
        )
        # The broker may be unreachable for both releases, and the power may have failed: only a
        # second failure marks the release as bad.
        is_bad = attempts >= MOST_TRIES or not any(
            cause in reason for cause in ("session with the broker", "the board went down")
        )
        failure = {
            "attempts": attempts,
            "is_bad": is_bad,
            "reason": reason,
            "ended_ns": time.time_ns(),
        }
        self._end(update, "failed", f"rolled back to {update['from']}, because {reason}", failure)

    def _finish(self, update: Record) -> None:
        """Clean up the disk, then write the outcome."""
        outcome, failure, bad = update["outcome"], update["failure"], self.journal.get("bad", {})
        version, newest_ns = outcome["version"], self.journal.get("newest_ns", 0)
        root, current, proven = (
            self.options.root,
            self._current(),
            install.linked(self.options.root, "proven"),
        )
        if current not in (None, proven):
            install.link(root, current, "proven")
        if failure is not None and version is not None:
            install.prune(
                root, *(installed for installed in self._installed() if installed != version)
            )
            bad = {**bad, version: failure}
        if outcome["state"] == "done" and version != outcome["from"]:
            bad = {other: note for other, note in bad.items() if other != version}
            newest_ns = self._trust_keys(version, outcome["from"])
            install.prune(root, version, outcome["from"])
        self._write(update=None, outcome=outcome, bad=bad, newest_ns=newest_ns)
        if current not in (None, proven) and Path(sys.argv[0]) == root / "proven/supervisor.py":
            logger.info("continuing as the supervisor of release %s", current)
            os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - ourselves

    def _trust_keys(self, version: str, before: str | None) -> int:
        """Trust the keys of a healthy release, which was signed by a key trusted before.

        Return when the newest release that ran here was built. A release older than any that ran
        here does not restore an old key.
        """
        built_ns: int = self._built_ns(version)
        newest_ns: int = max(self.journal.get("newest_ns", 0), self._built_ns(before))
        brought = self.releases / version / install.KEYS
        keys = brought.read_bytes() if built_ns > newest_ns and brought.is_file() else b""
        if install.public_keys(keys):
            install.write(self.options.root / install.TRUSTED_KEYS, keys)
        return max(built_ns, newest_ns)

    def _roll_back_from(self, version: str | None, reason: str) -> None:
        candidates = [
            other
            for other in self._installed()
            if other != version and not self._bad(other).get("is_bad")
        ]
        if candidates:
            self._write(
                update={
                    "step": "going back",
                    "order": {"version": version},
                    "from": candidates[0],
                    "reason": reason,
                }
            )

    def _is_looping(self, *, is_healthy: bool) -> bool:
        """Return whether the agent repeatedly started and ended.

        It is counted since the agent was healthy or was counted first.
        """
        status, output = run(
            shlex.split(self.options.starts_command), self.own / "starts.log", 30.0
        )
        failed = int(output) if status == 0 and re.fullmatch("[0-9]{1,9}", output) else None
        if failed is None:
            self._starts = None
        elif (
            self._starts is None
            or is_healthy
            or failed < self._starts[0]
            or time.monotonic() - self._starts[1] > LOOP_S
        ):
            self._starts = (failed, time.monotonic())
        return (
            failed is not None
            and self._starts is not None
            and failed - self._starts[0] >= self.options.failed_starts
        )

    def _call(self, command: str) -> None:
        status, output = run(shlex.split(command), self.own / "restart.log", 120.0)
        if status != 0:
            logger.warning("`%s` failed: %s", command, output)

    def _wants_reboot(self) -> bool:
        # In another boot the request has been fulfilled.
        boot = read_plain(self.requests / "reboot").decode(errors="replace").strip()
        return (
            bool(boot)
            and boot == self.options.boot_id.read_text().strip()
            and not self._has_rebooted
        )

    @contextlib.contextmanager
    def _quiet(self, patience_s: float) -> Iterator[bool]:
        """Hold the run lock for the block, so that no measurement begins.

        It yields False if the lock was not free within `patience_s`.
        """
        descriptor = self._open_run_lock()
        try:
            is_ours = lock_within(descriptor, patience_s, self.options.every_s)
            if is_ours:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"edgemeter-supervisor (pid {os.getpid()})\n".encode(), 0)
            yield is_ours
        finally:
            os.close(descriptor)

    def _open_run_lock(self) -> int:
        """Open the board's run lock, or that of the home folder if there is no other.

        Every user may lock it.
        """
        board = self.options.home / RUN_LOCK
        path = board if board.parent.is_dir() else self.options.home / "run.lock"
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with contextlib.suppress(FileNotFoundError):
            return os.open(str(path), flags)
        # Other users' files may not be opened with O_CREAT (fs.protected_regular).
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(str(path), flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(descriptor, 0o666)
            return descriptor
        return os.open(str(path), flags)


def _is_running(report: Record) -> bool:
    """Return whether the process of a health report still runs.

    It is identified by its number and start time (field 22 of proc(5)'s stat).
    """
    try:
        fields = Path(f"/proc/{int(report['pid'])}/stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) == int(report["started_ticks"])
    except (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError):
        return False


def main() -> int:
    """Supervise until killed; return 1 if another supervisor is running."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    parser = argparse.ArgumentParser(
        description=(
            "Switch releases of the edgemeter agent, and roll back a release that is not healthy."
        )
    )
    for name, default in OPTIONS.items():
        parser.add_argument(
            "--" + name.replace("_", "-"),
            type=type(default),
            default=default,
            help="default: %(default)s",
        )
    options = parser.parse_args()
    lock = os.open(
        str(options.root / "supervisor.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
    )
    # The agent briefly checks whether it is held.
    if not lock_within(lock, 5.0, 0.2):
        logger.error("another supervisor holds %s", options.root / "supervisor.lock")
        return 1
    notify("READY=1")
    supervisor = None
    while True:
        try:
            supervisor = supervisor or Supervisor(options)
            supervisor.poll()
        except OSError as error:
            logger.warning("cannot continue now: %s", error)
            # A new one starts from the state on the disk.
            supervisor = None
            pause(options.every_s)
        pause(options.every_s)


if __name__ == "__main__":
    sys.exit(main())
