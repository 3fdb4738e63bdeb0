"""The supervisor of a device: installs a release and rolls it back if it is not healthy. A standalone script for Python 3.8 and later.

It stays one file with the standard library only, because it is copied to boards and runs without a release. It runs as root beside the
agent and trusts the agent only for which update it requests: the release's hash is checked here, its signature and files by `install.py`
with the public key that came with the device.

    update/wanted.json     the agent's update request           update/outcome.json      the outcome
    update/withdrawn.json  the request that no longer holds     update/interrupted.json  how often its installation was interrupted
    update/healthy.json    the agent's health report            update/bad.json          the versions that failed
    update/reboot          the agent's request for a reboot

The run lock of the board, /run/lock/edgemeter-run.lock, is held by whatever measures, and here for a switch or a reboot.

Every step is written to a journal on the disk before it begins, so that after a kill or a power cut at any moment it continues there:
`taken` (waits for the end of the measurement), `installing` (beside the running release), `trying` (the new release runs and has to
report that it is healthy), `going back` (rollback to the previous release), `ended`. An interrupted installation is resumed, after a pause
that grows, until it ends or is withdrawn; a trial that the board itself did not survive is repeated once.
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
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional  # noqa: UP035 - Python 3.8

logger = logging.getLogger("edgemeter-supervisor")

Record = Dict[str, Any]  # noqa: UP006 - Python 3.8

UNIT = "edgemeter-agent.service"
# The keys that sign releases: those that this device trusts, and those that a release brings.
TRUSTED_KEYS, BROUGHT_KEYS = "release.pub", "release.keys"
MARK = "SUPERVISED_EDGEMETER_ROOT"
LARGEST_FILE_BYTES = 64 << 10
PIECE_BYTES = 1 << 20
SYNC_BYTES = 32 << 20
# A release is tried in so many boots, and is bad after so many failures that may not be its own.
MOST_TRIES = 2
# An installation that brings the board down each time is resumed this often in the end.
LONGEST_PAUSE_S = 3600.0
# A release has so many times as long to become healthy as this board took to install it and to import the previous one.
SLOW_FACTOR, LONGEST_TRIAL_S = 3.0, 3600.0
# Starts that fail within this time are one loop, and not the accidents of a long life.
LOOP_S = 1800.0
FORMS = {
    "job": r"[a-z0-9][a-z0-9-]{0,63}",
    "attempt": r"[1-9][0-9]{0,3}",
    "version": r"[0-9][A-Za-z0-9.+]{0,63}",
    "sha256": r"[0-9a-f]{64}",
    "size_bytes": r"[1-9][0-9]{0,12}",
    "timeout_s": r"[1-9][0-9]{0,5}",
    "even_if": r"|bad|older|older,bad|bad,older",
}


class Refused(Exception):  # noqa: N818 - a verdict, not a mistake
    """The update is refused: why, in one line for people."""


class Folder:
    """The files in a folder that an unprivileged user may write: links are not followed, pipes not waited for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        home = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._owner = os.fstat(home)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path.name, 0o750, dir_fd=home)
                os.chown(path.name, self._owner.st_uid, self._owner.st_gid, dir_fd=home, follow_symlinks=False)
            self._folder = os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=home)
        finally:
            os.close(home)

    def is_there(self) -> bool:
        """Return whether the path still leads here."""
        try:
            return self.path.lstat().st_ino == os.fstat(self._folder).st_ino
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the folder."""
        os.close(self._folder)

    def has(self, name: str) -> bool:
        """Return whether a file of that name exists."""
        try:
            os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def open(self, name: str) -> int:
        """Return a descriptor of the regular file, for reading."""
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(f"{name} is not a regular file")
        return descriptor

    def read(self, name: str) -> Record:
        """Return the JSON object in that file; empty if none can be read."""
        try:
            with os.fdopen(self.open(name), "rb") as file:
                document = json.loads(file.read(LARGEST_FILE_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}

    def write(self, name: str, record: Record) -> None:
        """Write the JSON object, whole or not at all, and sync it."""
        self.remove(f".{name}")
        descriptor = os.open(f".{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o640, dir_fd=self._folder)
        with os.fdopen(descriptor, "w") as file:
            os.fchown(file.fileno(), self._owner.st_uid, self._owner.st_gid)
            json.dump(record, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f".{name}", name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)

    def remove(self, name: str) -> None:
        """Remove the file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)
            os.fsync(self._folder)


def pause(seconds: float) -> None:
    """Sleep, and keep the watchdog of the service manager alive."""
    notify("WATCHDOG=1")
    time.sleep(seconds)


def notify(state: str) -> None:
    """Notify the service manager. Source: sd_notify(3)."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if name.startswith(("/", "@")):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(state.encode(), "\0" + name[1:] if name.startswith("@") else name)


def run(command: list[str], log: Path, patience_s: float, marks: dict[str, str]) -> tuple[int | None, str]:
    """Run the command; return its status, None where it did not end by itself, and its last line. It is killed after `patience_s`."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **marks}
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
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
    return process.returncode, lines[-1][-500:] if lines else f"{command[0]} ended with status {process.returncode} and printed nothing"


class Releases:
    """`releases/` and the link `current` below `root`; a switch is one rename."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, version: str) -> Path:
        """Return the path of that release."""
        return self.root / "releases" / version

    def current(self) -> str | None:
        """Return the version that `current` names, None if it cannot run."""
        try:
            target = Path(os.readlink(self.root / "current"))  # noqa: PTH115 - Python 3.8
        except OSError:
            return None
        return target.name if self._runs(target.name) else None

    def installed(self) -> list[str]:
        """Return the installed versions, the newest installation first."""
        try:
            paths = [path for path in (self.root / "releases").iterdir() if self._runs(path.name)]
        except OSError:
            return []
        return [path.name for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)]

    def switch(self, version: str) -> None:
        """Let `current` name that version, and sync it."""
        link = self.root / ".current"
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(Path("releases") / version)
        link.replace(self.root / "current")
        _sync(self.root)

    def keep(self, *versions: str | None) -> None:
        """Remove every release except these and the running one."""
        with contextlib.suppress(OSError):
            for path in (self.root / "releases").iterdir():
                if path.name not in {*versions, self.current()}:
                    shutil.rmtree(str(path), ignore_errors=True)

    def size_bytes(self, version: str | None) -> int:
        """Return the disk space of that release."""
        if version is None:
            return 0
        return sum(path.lstat().st_blocks * 512 for path in self.path(version).rglob("*"))

    def _runs(self, version: str) -> bool:
        # An installation writes the manifest last.
        path = self.path(version)
        return (
            re.fullmatch(FORMS["version"], version) is not None and (path / "manifest.json").exists() and (path / "bin" / "python").exists()
        )


class Supervisor:
    """One device's supervisor; `poll` is called repeatedly. It raises OSError if the disk fails, and the next poll continues."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.releases = Releases(options.root)
        self.own = options.root / "supervisor"
        self.own.mkdir(mode=0o700, exist_ok=True)
        self.journal = Folder(self.own)
        self.update = Folder(options.home / "update")
        # The agent, who may not write in every /run/lock, finds it there.
        os.close(self._open_run_lock())
        # The failed starts to count from, and since when.
        self._starts: tuple[int, float] | None = None
        self._counted_s = 0.0
        self._complaint: str | None = None
        self._keys_of: str | None = None
        self._began_s = time.monotonic()
        self._has_reported_interruption = False

    def close(self) -> None:
        """Close the folders."""
        self.journal.close()
        self.update.close()

    def poll(self) -> None:
        """Do what is due: continue an update, begin a requested one, reboot, or roll back an agent that does not start."""
        if not self.update.is_there():
            raise OSError(f"{str(self.update.path)!r} was replaced")
        step = self.journal.read("journal.json")
        if step.get("step"):
            if not self._rests(step):
                self._go_on(step)
        elif self.releases.current() != self._keys_of:
            self._take_keys()
        elif self.update.has("wanted.json"):
            self._take()
        elif self.update.has("reboot"):
            self._reboot()
        elif self.releases.current() is None:
            self._roll_back_from(None, "there was no release at `current`")
        elif time.monotonic() - self._counted_s > self.options.count_every_s:
            self._counted_s = time.monotonic()
            self._count_starts()

    def _take_keys(self) -> None:
        """Trust the keys that the running release brings, if their number is greater: it was signed by a key trusted before.

        Nothing is noted: what is not done yet is seen in the two files, at every start.
        """
        running = self.releases.current()
        if running is not None:
            brought, trusted = self.releases.path(running) / BROUGHT_KEYS, self.options.root / TRUSTED_KEYS
            keys = brought.read_bytes() if brought.is_file() else b""
            if _key_number(keys) > _key_number(trusted.read_bytes() if trusted.is_file() else b"") and b"BEGIN PUBLIC KEY" in keys:
                staged = self.own / TRUSTED_KEYS
                staged.write_bytes(keys)
                staged.chmod(0o644)
                _sync(staged)
                staged.replace(trusted)
                _sync(self.options.root)
                logger.info("releases are checked by the keys of %s from now on (number %d)", running, _key_number(keys))
        self._keys_of = running

    def _take(self) -> None:
        request, last = self.update.read("wanted.json"), self.update.read("outcome.json")
        # Only fields of the right form are used.
        order = {name: str(request[name]) for name, form in FORMS.items() if name in request and re.fullmatch(form, str(request[name]))}
        if request and (order.get("job"), order.get("attempt")) != (last.get("job"), str(last.get("attempt"))):
            was_installed = order.get("version") in self.releases.installed()
            step = {"step": "taken", "order": order, "from": self.releases.current(), "was_installed": was_installed}
            try:
                self._check(request, order)
                if order["version"] == step["from"]:
                    self._end(step, "done", f"version {order['version']} runs already")
                else:
                    self._note(step)
            except Refused as why:
                self._end(step, "failed", str(why))
        self.update.remove("wanted.json")

    def _check(self, request: Record, order: dict[str, str]) -> None:
        wrong = sorted((set(request) | set(FORMS)) - set(order))
        if wrong:
            raise Refused(f"not an update request: unknown, missing or wrong fields: {', '.join(wrong)[:200]}")
        bad = self._bad()
        failure = bad.pop(order["version"], {})
        if failure.get("is_bad"):
            if "bad" not in order["even_if"]:
                raise Refused(
                    f"version {order['version']} failed here before ({failure.get('reason')}): it is retried only with `--even-if bad`"
                )
            self.update.write("bad.json", bad)

    def _bad(self) -> dict[str, Record]:
        failures = self.update.read("bad.json")
        return {
            version: failure
            for version, failure in failures.items()
            if isinstance(failure, dict) and isinstance(failure.get("attempts"), int)
        }

    def _rests(self, step: Record) -> bool:
        """Return whether to wait before an interrupted installation is resumed: at first a second, then twice as long each time."""
        interrupted = step.get("tries", 0) if step["step"] == "installing" else 0
        if interrupted == 0 or self._is_named_in("withdrawn.json", step):
            return False
        if not self._has_reported_interruption:
            named = {"job": step["order"]["job"], "attempt": int(step["order"]["attempt"])}
            with contextlib.suppress(OSError):
                self.update.write("interrupted.json", {**named, "times": interrupted})
            logger.info("the installation of %s was interrupted (%d), resuming", step["order"]["version"], interrupted)
            self._has_reported_interruption = True
        return time.monotonic() - self._began_s < _pause_s(self.options.first_pause_s, interrupted)

    def _is_named_in(self, file: str, step: Record) -> bool:
        """Return whether that file of the agent's is about this update."""
        request = self.update.read(file)
        return [str(request.get(name)) for name in ("job", "attempt")] == [step["order"].get(name) for name in ("job", "attempt")]

    def _go_on(self, step: Record) -> None:
        if self._is_named_in("wanted.json", step):
            self.update.remove("wanted.json")
        _end_leftovers(self.options.root)
        patience_s = self.options.blocked_after_s
        if step["step"] == "taken":
            patience_s = min(patience_s, float(step["order"]["timeout_s"]))
        with self._quiet(patience_s if step["step"] != "ended" else 0.0) as is_quiet:
            if step["step"] == "taken" and not is_quiet:
                self._end(step, "failed", f"blocked by run: a measurement was going on for {patience_s:.0f} s")
                return
            # A trial that has begun is completed, even if the lock is never released.
            while step.get("step"):
                {
                    "taken": self._install,
                    "installing": self._install,
                    "trying": self._try,
                    "going back": self._roll_back,
                    "ended": self._report,
                }[step["step"]](step)
                step = self.journal.read("journal.json")

    def _install(self, step: Record) -> None:
        """Install it beside the running release; an InterruptedError leaves the step as it is, to be resumed."""
        order = step["order"]
        self._note({**step, "step": "installing", "tries": step.get("tries", 0) + 1})
        try:
            self._refuse_withdrawn(step)
            self._make_room(order)
            began_s = time.monotonic()
            self._build(order, self._staged(order))
            self._refuse_withdrawn(step)
        except InterruptedError:
            raise
        except (Refused, OSError) as error:
            why = str(error) if isinstance(error, Refused) else f"cannot install version {order['version']}: {error.strerror or error}"
            self._clear(step)
            self._end(step, "failed", why)
        else:
            own_s = SLOW_FACTOR * (time.monotonic() - began_s + _imports_s(self.update.read("healthy.json")))
            within_s = max(self.options.healthy_within_s, min(own_s, LONGEST_TRIAL_S))
            self._note({**step, "step": "trying", "tries": 0, "within_s": within_s})

    def _refuse_withdrawn(self, step: Record) -> None:
        if self._is_named_in("withdrawn.json", step):
            raise Refused(f"the update to {step['order']['version']} was withdrawn")

    def _make_room(self, order: Record) -> None:
        """Refuse a release that does not fit, before anything is written: it takes about as much as the running one."""
        size_bytes = int(order["size_bytes"])
        needed_bytes = max(2 * size_bytes, size_bytes + self.releases.size_bytes(self.releases.current()))
        if shutil.disk_usage(str(self.options.root)).free < needed_bytes:
            self.releases.keep(order["version"])
        free_bytes = shutil.disk_usage(str(self.options.root)).free
        if free_bytes < needed_bytes:
            needs = f"version {order['version']} needs {needed_bytes >> 20} MiB below {str(self.options.root)!r}"
            raise Refused(f"no space: {needs}, {free_bytes >> 20} MiB are free")

    def _staged(self, order: Record) -> Path:
        """Return a copy of the release that only root can change, with the requested hash."""
        staged: Path = self.own / "bundle.tar"
        digest = hashlib.sha256()
        contents = Folder(self.options.home / "content")
        try:
            with os.fdopen(contents.open(order["sha256"]), "rb") as source, staged.open("wb") as target:
                while (block := source.read(PIECE_BYTES)) and target.tell() < int(order["size_bytes"]):
                    digest.update(block)
                    target.write(block)
                    if target.tell() % SYNC_BYTES == 0:
                        # A slow card takes long: never sync so much at once that the watchdog expires.
                        target.flush()
                        os.fsync(target.fileno())
                    notify("WATCHDOG=1")
                target.flush()
                os.fsync(target.fileno())
        except FileNotFoundError as error:
            raise Refused(f"the release {order['sha256'][:12]} is not in the device's content") from error
        finally:
            contents.close()
        if digest.hexdigest() != order["sha256"]:
            raise Refused(f"the release does not have the requested hash ({order['sha256'][:12]})")
        return staged

    def _build(self, order: Record, staged: Path) -> None:
        version = _version(staged)
        if version != order["version"]:
            raise Refused(f"the release holds version {version!r}, requested is {order['version']!r}")
        root = self.options.root
        command = [sys.executable, root / "install.py", "--release", staged, "--root", root, "--public-key", root / TRUSTED_KEYS]
        if "older" in order["even_if"]:
            command.append("--allow-downgrade")
        status, output = run([*map(str, command), "--switch", "no"], self.own / "install.log", self.options.install_s, {MARK: str(root)})
        if status is not None and status < 0:
            raise InterruptedError(f"the installation of {version} was killed by signal {-status}")
        if status != 0 or version not in self.releases.installed():
            raise Refused(f"version {version} cannot be installed: {output}")

    def _try(self, step: Record) -> None:
        """Start the release and wait for its health; a killed supervisor goes on waiting, after a reboot the release is started anew."""
        order, boot = step["order"], self.options.boot_id.read_text()
        if step.get("boot") != boot:
            if step["tries"] == MOST_TRIES:
                self._begin_rollback(step, f"{MOST_TRIES} times the board went down while it was tried")
                return
            step = {**step, "tries": step["tries"] + 1, "boot": boot, "until_s": None}
            self._note(step)
        if step["until_s"] is None:
            self.update.remove("healthy.json")
            self.releases.switch(order["version"])
            self._restart()
            step = {**step, "until_s": time.clock_gettime(time.CLOCK_BOOTTIME) + step["within_s"]}
            self._note(step)
        why = self._why_unhealthy(step)
        if why is None:
            self._end(step, "done", f"version {order['version']} runs and is healthy")
        else:
            self._begin_rollback(step, why)

    def _begin_rollback(self, step: Record, why: str) -> None:
        attempts = self._bad().get(step["order"]["version"], {}).get("attempts", 0) + 1
        self._note({**step, "step": "going back", "reason": why, "attempts": attempts})

    def _why_unhealthy(self, step: Record) -> str | None:
        """Return None once the release has reported that it is healthy and has kept running for a while; else the reason."""
        version, healthy_s, first = step["order"]["version"], None, self._failed_starts()
        why = "it never reported its health"
        while True:
            report = self.update.read("healthy.json")
            if report.get("release") == version:
                ended = "it reported that it is healthy, and then ended"
                why = ended if report.get("state") == "healthy" else str(report.get("reason") or "it gives no reason")[:500]
                if report.get("state") == "broken":
                    return why
            if report.get("release") == version and report.get("state") == "healthy" and _is_running(report):
                healthy_s = healthy_s or time.monotonic()
                if time.monotonic() - healthy_s >= self.options.settle_s:
                    return None
            else:
                healthy_s = None
            failed = self._failed_starts()
            if failed is not None and failed - (first if first is not None and first <= failed else 0) >= self.options.failed_starts:
                return f"it was started {self.options.failed_starts} times and ended each time"
            if healthy_s is None and time.clock_gettime(time.CLOCK_BOOTTIME) > step["until_s"]:
                return f"it was not healthy within {step['within_s']:.0f} s: {why}"
            pause(self.options.every_s)

    def _roll_back(self, step: Record) -> None:
        if step["from"] is not None:
            self.releases.switch(step["from"])
            self._restart()
        attempts = step["attempts"]
        # The broker may be unreachable for both releases, and the power may have failed: only a second failure marks the release as bad.
        is_bad = attempts >= MOST_TRIES or not any(cause in step["reason"] for cause in ("session with the broker", "the board went down"))
        bad = {"attempts": attempts, "is_bad": is_bad, "reason": step["reason"], "ended_ns": time.time_ns()}
        self._end(step, "failed", f"rolled back to {step['from']}, because {step['reason']}", bad)

    def _end(self, step: Record, state: str, reason: str, bad: Record | None = None) -> None:
        logger.info("%s: %s", state, reason)
        order = {name: step["order"].get(name) for name in ("job", "attempt", "version")}
        self._note({"step": "ended", "order": order, "from": step["from"], "state": state, "reason": reason, "bad": bad})

    def _note(self, step: Record) -> None:
        """Write the journal; if the disk is full, the copy of the release is emptied first."""
        try:
            self.journal.write("journal.json", step)
        except OSError:
            (self.own / "bundle.tar").write_bytes(b"")
            self.journal.write("journal.json", step)

    def _report(self, step: Record) -> None:
        attempt = step["order"]["attempt"]
        order = {**step["order"], "attempt": int(attempt) if attempt else None}
        outcome = {**order, "from": step["from"], "state": step["state"], "reason": step["reason"], "ended_ns": time.time_ns()}
        version = step["order"].get("version")
        if step["bad"] is not None and version is not None:
            self.update.write("bad.json", {**self._bad(), version: step["bad"]})
            self.releases.keep(*(installed_version for installed_version in self.releases.installed() if installed_version != version))
        if step["state"] == "done" and version != step["from"]:
            self.releases.keep(version, step["from"])
        self.update.write("outcome.json", outcome)
        self.update.remove("withdrawn.json")
        self.update.remove("interrupted.json")
        with contextlib.suppress(FileNotFoundError):
            (self.own / "bundle.tar").unlink()
        self.journal.remove("journal.json")
        if step["state"] == "done" and version is not None:
            self._adopt(self.releases.path(version))

    def _adopt(self, release: Path) -> None:
        """Replace installer and supervisor by those of a healthy release; this process continues as the new one."""
        is_other = False
        for name in ("install.py", "supervisor.py"):
            source, target = release / name, self.options.root / name
            if source.is_file() and _is_program(source) and source.read_bytes() != (target.read_bytes() if target.exists() else b""):
                staged = self.own / name
                shutil.copyfile(str(source), str(staged))
                staged.chmod(0o755)
                _sync(staged)
                staged.replace(target)
                _sync(self.options.root)
                is_other = is_other or name == "supervisor.py"
        if is_other and Path(sys.argv[0]) == self.options.root / "supervisor.py":
            logger.info("continuing as the supervisor of release %s", release.name)
            os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - ourselves

    def _clear(self, step: Record) -> None:
        if not step["was_installed"] or step["order"]["version"] not in self.releases.installed():
            shutil.rmtree(str(self.releases.path(step["order"]["version"])), ignore_errors=True)
        shutil.rmtree(str(self.options.root / ".incoming"), ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            (self.own / "bundle.tar").unlink()

    def _roll_back_from(self, version: str | None, reason: str) -> None:
        bad = [failed_version for failed_version, failure in self._bad().items() if failure.get("is_bad")]
        candidates = [candidate for candidate in self.releases.installed() if candidate not in (version, *bad)]
        if not candidates:
            if reason != self._complaint:
                logger.warning("%s, and there is no other release to roll back to", reason)
            self._complaint = reason
            return
        step = {"order": {"version": version}, "from": candidates[0]}
        self._note({**step, "step": "going back", "reason": reason, "attempts": MOST_TRIES})

    def _count_starts(self) -> None:
        """Roll back if the agent was started repeatedly without being healthy in between."""
        failed, report = self._failed_starts(), self.update.read("healthy.json")
        is_healthy = report.get("state") == "healthy" and _is_running(report)
        if failed is None:
            self._starts = None
        elif self._starts is None or is_healthy or failed < self._starts[0] or time.monotonic() - self._starts[1] > LOOP_S:
            self._starts = (failed, time.monotonic())
        elif failed - self._starts[0] >= self.options.failed_starts:
            self._starts = None
            self._roll_back_from(self.releases.current(), f"the agent was started {self.options.failed_starts} times and ended each time")

    def _failed_starts(self) -> int | None:
        status, output = run(shlex.split(self.options.starts_command), self.own / "starts.log", 30.0, {})
        return int(output) if status == 0 and re.fullmatch("[0-9]{1,9}", output) else None

    def _restart(self) -> None:
        status, output = run(shlex.split(self.options.restart_command), self.own / "restart.log", 120.0, {})
        if status != 0:
            logger.warning("cannot restart the agent: %s", output)

    def _reboot(self) -> None:
        with self._quiet(0.0) as is_quiet:
            if is_quiet:
                # First, or the board would reboot forever.
                self.update.remove("reboot")
                status, output = run(shlex.split(self.options.reboot_command), self.own / "restart.log", 120.0, {})
                if status != 0:
                    logger.warning("cannot reboot: %s", output)

    @contextlib.contextmanager
    def _quiet(self, patience_s: float) -> Iterator[bool]:
        """Hold the run lock for the block, so that no measurement begins; False if it was not free within `patience_s`."""
        descriptor = self._open_run_lock()
        try:
            until_s = time.monotonic() + patience_s
            while not (is_ours := _locked(descriptor)) and time.monotonic() < until_s:
                pause(self.options.every_s)
            if is_ours:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"edgemeter-supervisor (pid {os.getpid()})\n".encode(), 0)
            yield is_ours
        finally:
            os.close(descriptor)

    def _open_run_lock(self) -> int:
        """Open the board's run lock, or that of the home where there is no folder for it."""
        board = self.options.home / self.options.run_lock
        return _open_shared(board if board.parent.is_dir() else self.options.home / "run.lock")


def _open_shared(path: Path) -> int:
    """Open a file that every user may lock, owned by its creator; others may not open it with O_CREAT (fs.protected_regular)."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(descriptor, 0o666)
        return descriptor
    return os.open(path, flags)


def _pause_s(first_s: float, interrupted: int) -> float:
    """Return how long to wait after so many interruptions."""
    return float(min(first_s * 2.0 ** min(interrupted - 1, 20), LONGEST_PAUSE_S))


def _key_number(keys: bytes) -> int:
    match = re.search(rb"\A# edgemeter release keys, number ([0-9]{1,9}),", keys)
    return int(match[1]) if match else 0


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_running(report: Record) -> bool:
    """Return whether the process of a health report still runs: its number and start time (field 22 of proc(5)'s stat)."""
    try:
        fields = Path(f"/proc/{int(report['pid'])}/stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) == int(report["started_ticks"])
    except (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError):
        return False


def _imports_s(report: Record) -> float:
    """Return how long the imports of a healthy release took, as it reports; 0 where it does not, or no such time."""
    value = report.get("imports_s")
    return float(value) if isinstance(value, (int, float)) and 0 < value <= LONGEST_TRIAL_S else 0.0


def _is_program(path: Path) -> bool:
    try:
        compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _version(release: Path) -> Optional[str]:  # noqa: UP045 - Python 3.8
    try:
        with tarfile.open(str(release), "r:") as tar:
            for member in tar:
                if member.name in ("manifest.json", "./manifest.json") and member.isreg() and member.size < (1 << 22):
                    file = tar.extractfile(member)
                    version = json.loads(file.read())["version"] if file else None
                    return version if isinstance(version, str) else None
    except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return None


def _end_leftovers(root: Path) -> None:
    """Kill what an installation of an earlier supervisor left running, as systemd does."""
    mark = f"{MARK}={root}".encode()
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    os.kill(int(path.name), signal.SIGKILL)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Switch releases of the edgemeter agent, and roll back a release that is not healthy.")
    parser.add_argument("--root", type=Path, default=Path("/opt/edgemeter"))
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("EDGEMETER_HOME") or "/var/lib/edgemeter"))
    parser.add_argument(
        "--run-lock",
        default=os.environ.get("EDGEMETER_RUN_LOCK") or "/run/lock/edgemeter-run.lock",
        help="held by whatever measures on this board; a relative one lies in the home",
    )
    parser.add_argument("--restart-command", default=f"systemctl --no-block restart {UNIT}")
    parser.add_argument(
        "--starts-command", default=f"systemctl show --property=NRestarts --value {UNIT}", help="prints the number of failed starts"
    )
    parser.add_argument("--reboot-command", default="systemctl reboot")
    parser.add_argument("--boot-id", type=Path, default=Path("/proc/sys/kernel/random/boot_id"), help="a file that differs after a reboot")
    parser.add_argument(
        "--healthy-within-s", type=float, default=300.0, help="the least time for a release to become healthy; a slow card has more"
    )
    parser.add_argument("--settle-s", type=float, default=30.0, help="how long a healthy agent has to keep running")
    parser.add_argument("--blocked-after-s", type=float, default=6 * 3600.0, help="how long to wait for a measurement")
    parser.add_argument("--install-s", type=float, default=1800.0)
    parser.add_argument("--first-pause-s", type=float, default=1.0, help="how long to wait after the first interruption of an installation")
    parser.add_argument("--failed-starts", type=int, default=5)
    parser.add_argument("--count-every-s", type=float, default=60.0)
    parser.add_argument("--every-s", type=float, default=1.0)
    return parser


def main() -> int:
    """Supervise until killed; return 1 if another supervisor is running."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    options = _arguments().parse_args()
    lock = os.open(options.root / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    # The agent checks for a moment whether it is held.
    until_s = time.monotonic() + 5.0
    while not _locked(lock):
        if time.monotonic() > until_s:
            logger.error("another supervisor holds %s", options.root / "supervisor.lock")
            return 1
        time.sleep(0.2)
    notify("READY=1")
    supervisor = None
    while True:
        try:
            supervisor = supervisor or Supervisor(options)
            supervisor.poll()
        except OSError as error:
            logger.warning("cannot continue now: %s", error)
            # Its folders may have been replaced.
            if supervisor is not None:
                supervisor.close()
                supervisor = None
            pause(options.every_s)
        pause(options.every_s)


if __name__ == "__main__":
    sys.exit(main())
