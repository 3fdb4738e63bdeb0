"""Installs the agent on boards, several in parallel.

The steps are to inspect the board, to choose a release, to copy it, and then to run the steps as
root there. Every step checks first and changes only what differs, so that a repeated run changes
nothing and an interrupted one continues.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    TransientError,
    UnavailableError,
)
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.contract.identity import join_file_text
from edgemeter.provisioning.apply import bring
from edgemeter.provisioning.apply.board import MB, Board, SshTarget
from edgemeter.provisioning.apply.facts import Interpreter
from edgemeter.provisioning.apply.on_device import INSTALL_S, last_line
from edgemeter.provisioning.identity.admission import invite
from edgemeter.provisioning.inventory.fleet_file import open_registry, read
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.selection import select_devices
from edgemeter.provisioning.release.install import RefusedError, version_key
from edgemeter.provisioning.release.release_file import ReleaseFile

ON_DEVICE = Path(__file__).with_name("on_device.py")
ROOT = "/opt/edgemeter"
START_S, JOIN_S = 900.0, 120.0
# The token is used within minutes; an unused one expires soon.
TOKEN_HOURS = 1.0

ApplyState: TypeAlias = Literal["ok", "changed", "skipped", "failed"]
# Called with a device, and its current step or result.
ReportStep = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class ApplyStep:
    """One step on one device: its result, and details."""

    step: str
    state: ApplyState
    detail: str


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """The result for one device; `remedy` is the reason of a failure and what to do."""

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
class Applying:
    """The application of the agent to devices.

    `join_file` makes join.toml with a new token for a device that has not joined. `ssh_options` are
    for `ssh -o`.
    """

    releases: Sequence[ReleaseFile]
    public_key: str
    join_file: Callable[[str], str]
    ssh_options: Sequence[str] = ()
    sudo_password: str | None = None
    is_dry: bool = False
    rejoins: bool = False

    def to_all(
        self, targets: Sequence[SshTarget], jobs: int, report: ReportStep
    ) -> list[ApplyOutcome]:
        """Return the outcome of each device, in the order of `targets`.

        `report` is called from several threads.
        """
        pool = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="apply")
        try:
            return list(pool.map(partial(self.to_device, report=report), targets))
        finally:
            # After an interruption no further device is started.
            pool.shutdown(wait=True, cancel_futures=True)

    def to_device(self, target: SshTarget, report: ReportStep) -> ApplyOutcome:
        """Return the outcome for one device, including errors."""
        steps: list[ApplyStep] = []
        words, remedy = None, None

        def add(step: ApplyStep) -> None:
            steps.append(step)
            report(
                target.name,
                f"{step.step}: {step.state}" + (f" ({step.detail})" if step.detail else ""),
            )
            if step.state == "failed":
                raise UnavailableError(step.detail)

        try:
            with Board(target, self.ssh_options, self.sudo_password) as board:
                report(target.name, "connecting")
                words = board.look(ROOT).words
                self._apply(board, add, partial(report, target.name))
        except EdgemeterError as error:
            remedy = str(error)
        outcome = ApplyOutcome(target.name, target.host, words, tuple(steps), remedy)
        report(target.name, outcome.state + (f": {remedy}" if remedy else ""))
        return outcome

    def _apply(
        self, board: Board, add: Callable[[ApplyStep], None], report: Callable[[str], None]
    ) -> None:
        """Do all steps in order; raises EdgemeterError at the first that fails."""
        facts = board.facts
        board.check_root()
        if not facts.has_openssl:
            raise UnavailableError(
                "openssl is missing there, which verifies signatures and makes the device's key: "
                "`sudo apt-get install openssl`"
            )
        release, python = bring.choose_release(self.releases, facts, board.target.address)
        version = release.manifest.version
        has_newer = False
        with contextlib.suppress(RefusedError):
            has_newer = facts.current is not None and version_key(facts.current) > version_key(
                version
            )
        lacks = not (has_newer or (facts.current == version and bring.is_installed(release, facts)))
        if lacks and not self.is_dry:
            copied_bytes = bring.copy_release(board, release, report)
            add(
                ApplyStep(
                    "copy", "changed" if copied_bytes else "ok", f"{copied_bytes / MB:.1f} MB"
                )
            )
        plan: dict[str, object] = {
            "dry": self.is_dry,
            "public_key": self.public_key,
            "python": python.path,
            "join_s": JOIN_S,
            "rejoin": self.rejoins,
            "install": bring.install_command(facts, python) if lacks else None,
            "installer": bring.INSTALLER.read_text() if lacks else "",
            "release": f"{facts.current} is installed, newer than {version}"
            if has_newer
            else f"{facts.current} -> {version}",
            "is_newer": has_newer,
        }
        last_steps = ["owner", "start"]
        for step in self._on_device(board, python, plan, ["user", "release", "units", "join"]):
            if step.step == "join" and step.state == "skipped":
                # Only a device that has not joined costs a token.
                report("joining")
                plan["join"], last_steps = self.join_file(board.target.name), ["join", *last_steps]
            else:
                add(step)
        for step in self._on_device(board, python, plan, last_steps):
            add(step)
        board.run(["rm", "-f", f"{facts.home}/{bring.STAGED}"])

    def _on_device(
        self, board: Board, python: Interpreter, plan: dict[str, object], names: list[str]
    ) -> Iterator[ApplyStep]:
        """Yield the results of these steps, which `on_device.py` runs as root on the device."""
        # JSON within a Python string: the content of a plan is data on the device, never code.
        steps = json.dumps(json.dumps(plan | {"steps": names}))
        program = f"import json\nPLAN = json.loads({steps})\n{ON_DEVICE.read_text()}"
        result = board.run_as_root([python.path, "-"], program.encode(), INSTALL_S + START_S)
        completed = []
        for line in result.stdout.splitlines():
            # A login shell may have printed something before.
            with contextlib.suppress(msgspec.MsgspecError):
                completed.append(decode_json(line, ApplyStep))
        yield from completed
        if len(completed) < len(names) and not any(step.state == "failed" for step in completed):
            raise TransientError(
                f"{names[len(completed)]} ended on the device "
                f"({last_line(result.stderr)}): run it again"
            )


def read_targets(folder: FleetFolder, selection: str) -> list[SshTarget]:
    """Return the selected devices with their hosts in fleet.toml.

    Raises:
        ConfigError: there is no device, or one has no host.
    """
    inventory = read(folder.fleet_file)
    with open_registry(folder, read_only=True) as registry:
        names = [device.device for device in select_devices(folder, registry, selection)]
    targets = []
    for name in names:
        entry = inventory.device.get(name)
        if entry is None or entry.host is None:
            lacking = (
                f'`host = "..."` to [device.{name}]'
                if entry
                else f'[device.{name}] with `host = "..."`'
            )
            raise ConfigError(f"fleet.toml has no host for {name!r}: add {lacking}")
        targets.append(SshTarget(name, entry.host, entry.user, entry.port))
    return targets


def make_join_file(folder: FleetFolder, device: str) -> str:
    """Return join.toml for `device`, with a new token, which replaces its last.

    It raises ConfigError as `invite`.
    """
    inventory = read(folder.fleet_file)
    with open_registry(folder) as registry, registry.transaction() as statements:
        return join_file_text(
            invite(folder, registry, statements, inventory, device, TOKEN_HOURS, time.time_ns())[0]
        )
