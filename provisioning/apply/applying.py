"""Install the agent on devices, several in parallel: inspect, choose a bundle, copy, then the steps that run as root there.

Every step looks first and changes only what differs, so that a repeated run changes nothing and an interrupted one goes on.
"""

import contextlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from edgemeter import provisioning
from edgemeter.agent.base.errors import EdgemeterError, TransientError, UnavailableError
from edgemeter.provisioning.apply import offer
from edgemeter.provisioning.apply.board import STAGE_ON_DISK, ExaminedBoard, Interpreter, RootShell, inspect_board, inspect_disk
from edgemeter.provisioning.apply.offer import Offer, PythonTar
from edgemeter.provisioning.apply.ssh import FileToCopy, SshConnection, SshOptions, SshTarget, copy_files, missing_files
from edgemeter.provisioning.bundle import install

ApplyState: TypeAlias = Literal["ok", "changed", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class ApplyStep:
    """One step on one device: its result, and details."""

    step: str
    state: ApplyState
    detail: str


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """The result for one device; `remedy` is why it failed and what to do."""

    device: str
    host: str
    found: str | None
    steps: tuple[ApplyStep, ...]
    remedy: str | None

    @property
    def state(self) -> ApplyState:
        """Failed, changed, or ok: nothing had to be done."""
        if self.remedy is not None:
            return "failed"
        return "changed" if any(step.state == "changed" for step in self.steps) else "ok"


_GOVERNOR = """[Unit]
Description=Edgemeter: the CPU governor that fleet.toml names
After=cpufrequtils.service ondemand.service raspi-config.service nvpmodel.service
Before=edgemeter-agent.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'for file in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo {} > $file; done'

[Install]
WantedBy=multi-user.target
"""
_PYTHON_DROP_IN = "[Service]\nExecStart=\nExecStart={} /opt/edgemeter/supervisor.py\n"


def governor_unit(name: str) -> str:
    """Return the unit that sets the CPU governor at each boot; the device checks that `name` is a plain word."""
    return _GOVERNOR.format(name)


def supervisor_python(path: str) -> str:
    """Return the drop-in for a supervisor that runs with the interpreter at `path`."""
    return _PYTHON_DROP_IN.format(path)


ON_DEVICE = Path(__file__).with_name("on_device.py")
UNITS = Path(provisioning.__file__).with_name("units")
STAGE = ".cache/edgemeter/apply"

# A release is built on the board: unpacking a hundred megabytes on a slow card.
INSTALL_S = 1800.0
JOIN_S = 120.0
START_S = 900.0
MB = 1e6

# Called with whether something goes on now or a step is done, the device, and what.
ReportStep = Callable[[Literal["now", "done"], str, str], None]


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """A device, how to reach it, and its settings in fleet.toml."""

    target: SshTarget
    power_mode: str | None = None
    governor: str | None = None


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """The settings that all devices share; `join_file` makes join.toml with a new token for a device that has not joined.

    `disk` is the device's disk with the system to install into, None for the running one.
    """

    offers: Sequence[Offer]
    public_key: str
    join_file: Callable[[str], str]
    ssh: SshOptions
    sudo_password: str | None = None
    python_tar: PythonTar | None = None
    disk: str | None = None
    prefix: str = ""
    sysfs: str = "/sys"
    is_dry: bool = False
    rejoins: bool = False


class _StepFailed(Exception):  # noqa: N818 - what ends one device, no error of its own
    """A step failed on the device; it is the last of the steps."""


class _DryRunEnds(Exception):  # noqa: N818 - as above
    """A dry run cannot look further."""


class _Steps(list[ApplyStep]):
    """The steps of a device, reported as they are done."""

    def __init__(self, device: str, report: ReportStep) -> None:
        super().__init__()
        self._device = device
        self._report = report

    def add(self, step: ApplyStep) -> None:
        """Add a step; a failed one ends the device."""
        self.append(step)
        self._report("done", self._device, f"{step.step}: {step.state}" + (f" ({step.detail})" if step.detail else ""))
        if step.state == "failed":
            raise _StepFailed

    def now(self, what: str) -> None:
        """Report what is being done."""
        self._report("now", self._device, what)


def apply_one(request: ApplyRequest, settings: ApplySettings, report: ReportStep) -> ApplyOutcome:
    """Return the outcome for one device; errors end up in it."""
    target = request.target
    steps = _Steps(target.name, report)
    words, remedy = None, None
    try:
        with SshConnection(target, settings.ssh) as connection:
            steps.now("connecting")
            device = _Device(connection, request, settings, steps)
            words = device.inspect().words
            device.apply()
    except _DryRunEnds:
        steps.now("the rest needs that Python")
    except _StepFailed:
        remedy = steps[-1].detail
    except EdgemeterError as error:
        remedy = str(error)
    return ApplyOutcome(target.name, target.host, words, tuple(steps), remedy)


def apply_all(
    requests: Sequence[ApplyRequest], settings: ApplySettings, jobs: int, report: ReportStep, ended: Callable[[ApplyOutcome], None]
) -> list[ApplyOutcome]:
    """Return the outcome of each device, in the order of `requests`; `report` and `ended` are called from several threads."""

    def one(request: ApplyRequest) -> ApplyOutcome:
        outcome = apply_one(request, settings, report)
        ended(outcome)
        return outcome

    pool = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="apply")
    try:
        return list(pool.map(one, requests))
    finally:
        # After an interruption no further device begins.
        pool.shutdown(wait=True, cancel_futures=True)


class _Device:
    """The work on one connected device."""

    def __init__(self, connection: SshConnection, request: ApplyRequest, settings: ApplySettings, steps: _Steps) -> None:
        self._connection = connection
        self._request = request
        self._settings = settings
        self._steps = steps

    def inspect(self) -> ExaminedBoard:
        """Return what the board is; to look at another disk takes root."""
        self._board = inspect_board(self._connection, self._settings.prefix)
        self._stage = self._stage_seen = f"{self._board.home}/{STAGE}"
        self._root = RootShell(self._connection, self._board.rights, self._settings.sudo_password)
        if self._settings.disk is not None:
            self._root.check()
            self._root, self._stage_seen = self._root.on_disk(self._settings.disk, self._stage), STAGE_ON_DISK
            self._board = inspect_disk(self._root, self._board, self._settings.disk)
        return self._board

    def apply(self) -> None:
        """Do everything, in order."""
        self._root.check()
        if not self._board.has_openssl:
            raise UnavailableError(
                "openssl is missing there, which verifies signatures and makes the device's key: `sudo apt-get install openssl`"
            )
        chosen, python = self._choose()
        is_installed, is_dry = self._has(chosen), self._settings.is_dry
        if not is_installed and not is_dry:
            files = [FileToCopy(chosen.folder / file.path, file.path, file.sha256, file.size_bytes) for file in chosen.files()]
            self._copy(files, chosen.unpacked_bytes())
        bundle = None if is_installed or is_dry else self._stage_seen
        first = ["user", "release", "service", "udev", "accelerators"]
        first += ["power_mode"] if self._request.power_mode else []
        first += ["governor"] if self._request.governor else []
        self._on_device([*first, "join"], chosen, python, bundle, None)
        if self._steps[-1].state == "skipped" and not is_dry:
            # Only a device that has not joined costs a token.
            self._steps.pop()
            self._on_device(["join"], chosen, python, bundle, self._settings.join_file(self._request.target.name))
        self._on_device(["owner", "start"], chosen, python, bundle, None)
        self._connection.run(["rm", "-rf", self._stage])

    def _has(self, chosen: Offer) -> bool:
        """Return whether that release is current there, or a newer one."""
        current, version = self._board.release, chosen.manifest.version
        if current == version:
            return self._board.manifest_sha256 == chosen.sha256
        with contextlib.suppress(install.RefusedError):
            return current is not None and install.version_key(current) > install.version_key(version)
        return False

    def _choose(self) -> tuple[Offer, Interpreter]:
        """Return the bundle and its interpreter, which is installed first if the board has none."""
        tar, prefix = self._settings.python_tar, self._settings.prefix
        if tar is None:
            return offer.choose_offer(self._settings.offers, self._board)
        with contextlib.suppress(UnavailableError):
            return offer.choose_offer(self._settings.offers, self._board)
        offer.choose_offer(self._settings.offers, replace(self._board, pythons=(Interpreter(tar.version, tar.place(prefix)),)))
        if self._settings.is_dry:
            self._steps.add(ApplyStep("python", "changed", f"would install Python {tar.version}"))
            raise _DryRunEnds
        self._copy([FileToCopy(tar.path, "python.tar", tar.sha256, tar.path.stat().st_size)], tar.unpacked_bytes)
        result = self._root.run(["sh", "-s", "--", f"{self._stage_seen}/python.tar", tar.folder(prefix)], tar.unpack, INSTALL_S)
        if result.status != 0:
            raise UnavailableError(f"cannot unpack the Python there: {result.errors[-300:]}: is it a CPython for {self._board.arch}?")
        self._steps.add(ApplyStep("python", "changed", f"Python {tar.version} in {tar.folder('')}"))
        return offer.choose_offer(self._settings.offers, self.inspect())

    def _copy(self, files: list[FileToCopy], unpacked_bytes: int) -> None:
        """Copy the files into the stage, if they and what is unpacked of them fit."""
        board = self._board
        to_copy = sum(part.file.size_bytes - part.offset for part in missing_files(self._connection, self._stage, files))
        needed = {board.home_disk: to_copy}
        needed[board.disk] = needed.get(board.disk, 0) + unpacked_bytes
        free = {board.home_disk: board.home_free_bytes, board.disk: board.free_bytes}
        for disk, needed_bytes in needed.items():
            if needed_bytes > free[disk]:
                raise UnavailableError(
                    f"not enough room on {disk}: {needed_bytes / MB:.0f} MB are needed, {free[disk] / MB:.0f} MB are free: "
                    "remove something there (`sudo apt-get clean`, `journalctl --vacuum-size=50M`), or use a larger card"
                )
        copied_bytes = copy_files(
            self._connection, self._stage, files, lambda done, of: self._steps.now(f"copying {done / MB:.1f} of {of / MB:.1f} MB")
        )
        total_bytes = sum(file.size_bytes for file in files)
        detail = f"{copied_bytes / MB:.1f} MB of {total_bytes / MB:.1f} MB"
        self._steps.add(ApplyStep("copy", "changed" if copied_bytes else "ok", detail))

    def _on_device(self, steps: list[str], chosen: Offer, python: Interpreter, bundle: str | None, join: str | None) -> None:
        """Run these steps as root on the device, by `on_device.py` with a plan."""
        interpreter = python.path.removeprefix(self._settings.prefix)
        plan = {
            "prefix": self._settings.prefix,
            "sysfs": self._settings.sysfs,
            "dry": self._settings.is_dry,
            "steps": steps,
            "bundle": bundle,
            "version": chosen.manifest.version,
            "manifest_sha256": chosen.sha256,
            "public_key": self._settings.public_key,
            "python": interpreter,
            "python_drop_in": supervisor_python(interpreter),
            "governor_unit": governor_unit(self._request.governor or ""),
            "units": {path.name: path.read_text() for path in sorted(UNITS.glob("*.service"))},
            "rules": (UNITS / "70-edgemeter.rules").read_text(),
            "power_mode": self._request.power_mode,
            "governor": self._request.governor,
            "join": join,
            "rejoin": self._settings.rejoins,
            "install_s": INSTALL_S,
            "join_s": JOIN_S,
        }
        # JSON within a Python string: what a plan holds is data on the device, whatever it contains.
        program = f"import json\nPLAN = json.loads({json.dumps(json.dumps(plan))})\n{ON_DEVICE.read_text()}"
        self._steps.now(f"{steps[0]} ...")
        result = self._root.run([python.path, "-"], program.encode(), INSTALL_S + START_S)
        done = [_parse_step(line) for line in result.output.splitlines() if line.startswith("{")]
        for step in done:
            self._steps.add(step)
        if result.status != 0 or len(done) != len(steps):
            missing = steps[len(done)] if len(done) < len(steps) else steps[-1]
            last = (result.errors.splitlines() or ["no message"])[-1][:300]
            raise TransientError(f"{missing} ended on the device: {last}: run it again")


def _parse_step(line: str) -> ApplyStep:
    try:
        step = msgspec.json.decode(line, type=ApplyStep)
    except msgspec.MsgspecError as error:
        raise TransientError(f"the device reports {line[:200]!r}: {error}: run it again") from error
    return replace(step, detail="".join(char for char in step.detail if char.isprintable()))
