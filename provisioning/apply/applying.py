"""Install the agent on devices, several in parallel: inspect, choose a release, copy, then the steps that run as root there.

Every step looks first and changes only what differs, so that a repeated run changes nothing and an interrupted one goes on.
"""

import contextlib
import ipaddress
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from edgemeter import provisioning
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.contract.identity import join_file_text
from edgemeter.agent.operating import board_settings
from edgemeter.provisioning.apply import offer
from edgemeter.provisioning.apply.board import STAGE_ON_DISK, ExaminedBoard, Interpreter, RootShell, inspect_board, inspect_disk
from edgemeter.provisioning.apply.offer import Offer, PythonTar
from edgemeter.provisioning.apply.ssh import FileToCopy, SshConnection, SshOptions, SshTarget, copy_files, last_line, missing_files
from edgemeter.provisioning.identity.admission import invite
from edgemeter.provisioning.inventory.fleet_file import DeviceEntry, FleetFile, open_registry, read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.release import install

ON_DEVICE = Path(__file__).with_name("on_device.py")
UNITS = Path(provisioning.__file__).with_name("units")
STAGE = ".cache/edgemeter/apply"

# A release is built on the board: unpacking a hundred megabytes on a slow card.
INSTALL_S = 1800.0
LOOK_S = 60.0
JOIN_S = 120.0
START_S = 900.0
MB = 1e6
SSH_PORT = 22
# The token is used within minutes; one that is left unused expires soon.
TOKEN_HOURS = 1.0
PYTHON_DROP_IN = "[Service]\nExecStart=\nExecStart={} /opt/edgemeter/supervisor.py\n"

ApplyState: TypeAlias = Literal["ok", "changed", "skipped", "failed"]
# Called with whether something goes on now or a step is done, the device, and what.
ReportStep = Callable[[Literal["now", "done"], str, str], None]


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


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """A device, how to reach it, and its settings in fleet.toml."""

    target: SshTarget
    power_mode: str | None = None
    governor: str | None = None


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """The settings that all devices share; `join_file` makes join.toml with a new token for a device that has not joined.

    `disk` is the device's disk with the system to install into, None for the running one. `wheels` are installed beside the release's.
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
    wheels: tuple[FileToCopy, ...] = ()


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

    def now(self, activity: str) -> None:
        """Report what is being done."""
        self._report("now", self._device, activity)


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

    def apply_and_report(request: ApplyRequest) -> ApplyOutcome:
        outcome = apply_one(request, settings, report)
        ended(outcome)
        return outcome

    pool = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="apply")
    try:
        return list(pool.map(apply_and_report, requests))
    finally:
        # After an interruption no further device begins.
        pool.shutdown(wait=True, cancel_futures=True)


class _Device:
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
        offered, python = self._choose()
        self._wheels = self._lacking_wheels()
        is_installed, is_dry = self._has(offered) and not self._wheels, self._settings.is_dry
        if not is_installed and not is_dry:
            files = [FileToCopy(offered.folder / file.path, file.path, file.sha256, file.size_bytes) for file in offered.files()]
            self._copy([*files, *self._wheels], offered.unpacked_bytes())
        release = None if is_installed or is_dry else self._stage_seen
        first = ["user", "release", "service", "udev"]
        first += ["power_mode"] if self._request.power_mode else []
        first += ["governor"] if self._request.governor else []
        self._on_device([*first, "join"], offered, python, release, None)
        if self._steps[-1].state == "skipped" and not is_dry:
            # Only a device that has not joined costs a token.
            self._steps.pop()
            self._on_device(["join"], offered, python, release, self._settings.join_file(self._request.target.name))
        self._on_device(["owner", "start"], offered, python, release, None)
        self._connection.run(["rm", "-rf", self._stage])

    def _has(self, offered: Offer) -> bool:
        """Return whether that release is current there, or a newer one."""
        current, version = self._board.release, offered.manifest.version
        if current == version:
            return self._board.manifest_sha256 == offered.sha256
        with contextlib.suppress(install.RefusedError):
            return current is not None and install.version_key(current) > install.version_key(version)
        return False

    def _lacking_wheels(self) -> list[FileToCopy]:
        """Return the further wheels that the release that runs there lacks."""
        wheels = {f"{self._settings.prefix}/opt/edgemeter/current/further/{wheel.sha256}": wheel for wheel in self._settings.wheels}
        if not wheels:
            return []
        result = self._root.run(["sh", "-s", "--", *wheels], b'for path; do [ -e "$path" ] || echo "$path"; done\n', LOOK_S)
        return [wheel for path, wheel in wheels.items() if path in result.stdout.splitlines()]

    def _choose(self) -> tuple[Offer, Interpreter]:
        """Return the release and its interpreter, which is installed first if the board has none."""
        tar, prefix = self._settings.python_tar, self._settings.prefix
        if tar is None:
            return offer.choose_offer(self._settings.offers, self._board)
        with contextlib.suppress(UnavailableError):
            return offer.choose_offer(self._settings.offers, self._board)
        offer.choose_offer(
            self._settings.offers, replace(self._board, pythons=(Interpreter(tar.version, f"{tar.folder(prefix)}/bin/python3"),))
        )
        if self._settings.is_dry:
            self._steps.add(ApplyStep("python", "changed", f"would install Python {tar.version}"))
            raise _DryRunEnds
        self._copy([FileToCopy(tar.path, "python.tar", tar.sha256, tar.path.stat().st_size)], tar.unpacked_bytes)
        result = self._root.run(
            ["sh", "-s", "--", f"{self._stage_seen}/python.tar", tar.folder(prefix)], offer.UNPACK.read_bytes(), INSTALL_S
        )
        if result.returncode != 0:
            raise UnavailableError(
                f"cannot unpack the Python there ({result.stderr[-300:]}): check that it is a CPython for {self._board.arch}"
            )
        self._steps.add(ApplyStep("python", "changed", f"Python {tar.version} in {tar.folder('')}"))
        return offer.choose_offer(self._settings.offers, self.inspect())

    def _copy(self, files: list[FileToCopy], unpacked_bytes: int) -> None:
        """Copy the files into the stage, if they and what is unpacked of them fit."""
        board = self._board
        demand_bytes = Counter({board.home_disk: sum(size for _, _, size in missing_files(self._connection, self._stage, files))})
        demand_bytes[board.disk] += unpacked_bytes
        free_bytes = {board.home_disk: board.home_free_bytes, board.disk: board.free_bytes}
        for disk, size_bytes in demand_bytes.items():
            if size_bytes > free_bytes[disk]:
                raise UnavailableError(
                    f"not enough room on {disk}: {size_bytes / MB:.0f} MB are needed, {free_bytes[disk] / MB:.0f} MB are free: "
                    "remove something there (`sudo apt-get clean`, `journalctl --vacuum-size=50M`), or use a larger card"
                )
        copied_bytes = copy_files(
            self._connection, self._stage, files, lambda copied, of: self._steps.now(f"copying {copied / MB:.1f} of {of / MB:.1f} MB")
        )
        detail = f"{copied_bytes / MB:.1f} MB of {sum(file.size_bytes for file in files) / MB:.1f} MB"
        self._steps.add(ApplyStep("copy", "changed" if copied_bytes else "ok", detail))

    def _on_device(self, steps: list[str], offered: Offer, python: Interpreter, release: str | None, join: str | None) -> None:
        """Run these steps as root on the device, by `on_device.py` with a plan."""
        interpreter = python.path.removeprefix(self._settings.prefix)
        plan = {
            "prefix": self._settings.prefix,
            "sysfs": self._settings.sysfs,
            "dry": self._settings.is_dry,
            "steps": steps,
            "bundle": release,
            "with": [f"{self._stage_seen}/{wheel.name}" for wheel in self._wheels],
            "version": offered.manifest.version,
            "manifest_sha256": offered.sha256,
            "public_key": self._settings.public_key,
            "python": interpreter,
            "python_drop_in": PYTHON_DROP_IN.format(interpreter),
            "governor_unit": (UNITS / "edgemeter-governor.service.in").read_text().format(self._request.governor or ""),
            "units": {path.name: path.read_text() for path in sorted(UNITS.glob("*.service"))},
            "rules": (UNITS / "70-edgemeter.rules").read_text(),
            "power_mode": self._request.power_mode,
            "governor": self._request.governor,
            "join": join,
            "rejoin": self._settings.rejoins,
            "install_s": INSTALL_S,
            "join_s": JOIN_S,
        }
        self._steps.now(f"{steps[0]} ...")
        result = self._root.run([python.path, "-"], device_program(plan).encode(), INSTALL_S + START_S)
        completed = [_parse_step(line) for line in result.stdout.splitlines() if line.startswith("{")]
        for step in completed:
            self._steps.add(step)
        if result.returncode != 0 or len(completed) != len(steps):
            missing = steps[min(len(completed), len(steps) - 1)]
            raise TransientError(f"{missing} ended on the device ({last_line(result.stderr, 300)}): run it again")


def device_program(plan: Mapping[str, object]) -> str:
    """Return `on_device.py` with a plan, and the module of the agent that it imports, as a program for a bare Python."""
    name, settings = board_settings.__name__, Path(board_settings.__file__).read_text()
    # JSON within a Python string: what a plan holds is data on the device, whatever it contains.
    return "\n".join(
        (
            "import json, sys, types",
            f"PLAN = json.loads({json.dumps(json.dumps(plan))})",
            f"sys.modules[{name!r}] = module = types.ModuleType({name!r})",
            f"exec({settings!r}, module.__dict__)",
            ON_DEVICE.read_text(),
        )
    )


def _parse_step(line: str) -> ApplyStep:
    try:
        step = decode_json(line, ApplyStep)
    except msgspec.MsgspecError as error:
        raise TransientError(f"the device reports {line[:200]!r} ({error}): run it again") from error
    return replace(step, detail="".join(char for char in step.detail if char.isprintable()))


def of_fleet(names: Sequence[str], fleet: FleetFile | None, user: str | None, port: int | None) -> list[ApplyRequest]:
    """Return these devices as in fleet.toml; `user` and `port` take precedence. Raises ConfigError if one, or its host, is absent there."""
    requests = []
    for name in dict.fromkeys(names):
        entry = fleet.device.get(name) if fleet else None
        if entry is None or entry.host is None:
            lacking = f'`host = "..."` to [device.{name}]' if entry else f'[device.{name}] with `host = "..."`'
            raise ConfigError(f"fleet.toml has no host for {name!r}: add {lacking}, or give --host")
        requests.append(_request(name, entry.host, entry, user, port))
    return requests


def of_host(host: str, name: str | None, fleet: FleetFile | None, user: str | None, port: int | None) -> ApplyRequest:
    """Return the device at `host`, called `name`, else as the host; raises ConfigError if that is an address, which is not a name."""
    if name is None:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            name = host.split(".", 1)[0]
        else:
            raise ConfigError(f"{host!r} is not a name for a device: `edgemeter fleet apply NAME --host {host}`")
    return _request(name, host, fleet.device.get(name) if fleet else None, user, port)


def _request(name: str, host: str, entry: DeviceEntry | None, user: str | None, port: int | None) -> ApplyRequest:
    entry = entry or DeviceEntry()
    # 22 is the default: ssh's configuration may have another port.
    port = port or (entry.port if entry.port != SSH_PORT else None)
    return ApplyRequest(SshTarget(name, host, user or entry.user, port), entry.power_mode, entry.governor)


def make_join_file(folder: FleetFolder, device: str) -> str:
    """Return join.toml for `device`, with a new token, which ends its last; raises ConfigError as `invite`, or without fleet.toml."""
    inventory = read_if_present(folder)
    if inventory is None:
        raise ConfigError(f"{str(folder.fleet_file)!r} does not exist: `edgemeter fleet init` makes a fleet")
    with open_registry(folder) as registry:
        return join_file_text(invite(folder, registry, inventory, device, TOKEN_HOURS, time.time_ns()).join)
