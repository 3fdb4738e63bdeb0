"""One device from beginning to end: look, choose, copy, then what runs as root there. What was done before is found done."""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter import provisioning
from edgemeter.agent.errors import EdgemeterError, TransientError, UnavailableError
from edgemeter.provisioning.apply import copying, found, offer, unit_texts
from edgemeter.provisioning.apply.copying import Parcel
from edgemeter.provisioning.apply.found import Found, Python
from edgemeter.provisioning.apply.offer import Offer
from edgemeter.provisioning.apply.outcome import Outcome, Step
from edgemeter.provisioning.apply.python_tar import PythonTar
from edgemeter.provisioning.apply.root import Root
from edgemeter.provisioning.apply.ssh import Connection, SshOptions, Target
from edgemeter.provisioning.bundle import install

ON_DEVICE = Path(__file__).with_name("on_device.py")
UNITS = Path(provisioning.__file__).with_name("units")
STAGE = ".cache/edgemeter/apply"
# A release is built on the board: unpacking a hundred megabytes on a slow card.
INSTALL_S = 1800.0
JOIN_S = 120.0
START_S = 900.0
MB = 1e6

# Whether something goes on now, or a step is done; the device; what.
Told = Callable[[Literal["now", "done"], str, str], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """A device, how to reach it, and what fleet.toml wants of it."""

    target: Target
    power_mode: str | None = None
    governor: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What is the same for all devices; `join_file` makes the text of join.toml, with a new token, for a device that has not joined."""

    offers: Sequence[Offer]
    public_key: str
    join_file: Callable[[str], str]
    ssh: SshOptions
    sudo_password: str | None = None
    python_tar: PythonTar | None = None
    prefix: str = ""
    sysfs: str = "/sys"
    is_dry: bool = False
    rejoins: bool = False


class _StepFailed(Exception):  # noqa: N818 - what ends one device, no error of its own
    """A step failed on the device; it is the last of the steps."""


class _NothingToSee(Exception):  # noqa: N818 - as above
    """A dry run cannot look further."""


class _Steps(list[Step]):
    """The steps of a device as they are done, told to whoever watches."""

    def __init__(self, device: str, told: Told) -> None:
        super().__init__()
        self._device = device
        self._told = told

    def add(self, step: Step) -> None:
        """Add one; a failed one ends the device."""
        self.append(step)
        self._told("done", self._device, f"{step.step}: {step.state}" + (f" ({step.detail})" if step.detail else ""))
        if step.state == "failed":
            raise _StepFailed

    def now(self, what: str) -> None:
        """Say what is being done."""
        self._told("now", self._device, what)


def apply(wish: Wish, settings: Settings, told: Told) -> Outcome:
    """Return what came of one device; no error gets out, `told` hears what is being done."""
    target = wish.target
    steps = _Steps(target.name, told)
    words, remedy = None, None
    try:
        with Connection(target, settings.ssh) as connection:
            steps.now("connecting")
            here = found.look(connection, settings.prefix)
            words = here.words
            _Device(connection, wish, settings, here, steps).apply()
    except _NothingToSee:
        steps.now("the rest needs that Python")
    except _StepFailed:
        remedy = steps[-1].detail
    except EdgemeterError as error:
        remedy = str(error)
    return Outcome(target.name, target.host, words, tuple(steps), remedy)


class _Device:
    """The work on one connected device."""

    def __init__(self, connection: Connection, wish: Wish, settings: Settings, here: Found, steps: _Steps) -> None:
        self._connection = connection
        self._wish = wish
        self._settings = settings
        self._here = here
        self._steps = steps
        self._stage = f"{here.home}/{STAGE}"
        self._root = Root(connection, here.rights, settings.sudo_password)

    def apply(self) -> None:
        """Do everything, in order."""
        self._root.check()
        if not self._here.has_openssl:
            message = "openssl is not installed there, which checks signatures and makes the device's key: `sudo apt-get install openssl`"
            raise UnavailableError(message)
        chosen, python = self._choose()
        is_there = self._has(chosen)
        if not is_there and not self._settings.is_dry:
            self._copy(chosen)
        bundle = None if is_there or self._settings.is_dry else self._stage
        first = ["user", "release", "service", "udev"]
        first += ["power_mode"] if self._wish.power_mode else []
        first += ["governor"] if self._wish.governor else []
        self._on_device([*first, "join"], chosen, python, bundle, None)
        if self._steps[-1].state == "skipped" and not self._settings.is_dry:
            # Only a device that has not joined costs a token.
            self._steps.pop()
            self._on_device(["join"], chosen, python, bundle, self._settings.join_file(self._wish.target.name))
        self._on_device(["owner", "start"], chosen, python, bundle, None)
        self._connection.run(["rm", "-rf", self._stage])

    def _has(self, chosen: Offer) -> bool:
        """Return whether that release is current there, or a newer one."""
        current, version = self._here.release, chosen.manifest.version
        if current == version:
            return self._here.manifest_sha256 == chosen.sha256
        with contextlib.suppress(install.RefusedError):
            return current is not None and install.version_key(current) > install.version_key(version)
        return False

    def _choose(self) -> tuple[Offer, Python]:
        tar = self._settings.python_tar
        if tar is None:
            return offer.choose(self._settings.offers, self._here)
        with contextlib.suppress(UnavailableError):
            return offer.choose(self._settings.offers, self._here)
        brought = Python(tar.version, tar.place(self._settings.prefix))
        offer.choose(self._settings.offers, replace(self._here, pythons=(brought,)))
        if self._settings.is_dry:
            self._steps.add(Step("python", "changed", f"would bring Python {tar.version}"))
            raise _NothingToSee
        self._make_room([Parcel(tar.path, "python.tar", tar.sha256, tar.path.stat().st_size)], tar.unpacked_bytes)
        self._send([Parcel(tar.path, "python.tar", tar.sha256, tar.path.stat().st_size)])
        answer = self._root.run(["sh", "-s", "--", f"{self._stage}/python.tar", tar.folder(self._settings.prefix)], tar.unpack, INSTALL_S)
        if answer.status != 0:
            message = f"cannot unpack the Python there: {answer.complaint[-300:]}: is it a CPython for {self._here.arch}?"
            raise UnavailableError(message)
        self._steps.add(Step("python", "changed", f"Python {tar.version} in {tar.folder('')}"))
        self._here = found.look(self._connection, self._settings.prefix)
        return offer.choose(self._settings.offers, self._here)

    def _copy(self, chosen: Offer) -> None:
        parcels = [Parcel(chosen.folder / file.path, file.path, file.sha256, file.size_bytes) for file in chosen.files()]
        self._make_room(parcels, chosen.unpacked_bytes())
        self._send(parcels)

    def _make_room(self, parcels: list[Parcel], unpacked_bytes: int) -> None:
        to_copy = sum(part.parcel.size_bytes - part.offset for part in copying.missing(self._connection, self._stage, parcels))
        wanted = {self._here.home_disk: to_copy}
        wanted[self._here.disk] = wanted.get(self._here.disk, 0) + unpacked_bytes
        free = {self._here.home_disk: self._here.home_free_bytes, self._here.disk: self._here.free_bytes}
        for disk, wanted_bytes in wanted.items():
            if wanted_bytes > free[disk]:
                message = (
                    f"not enough room on {disk}: {wanted_bytes / MB:.0f} MB are needed, {free[disk] / MB:.0f} MB are free: "
                    "remove something there (`sudo apt-get clean`, `journalctl --vacuum-size=50M`), or use a bigger card"
                )
                raise UnavailableError(message)

    def _send(self, parcels: list[Parcel]) -> None:
        def moved(done: int, to_go: int) -> None:
            self._steps.now(f"copying {done / MB:.1f} of {to_go / MB:.1f} MB")

        moved_bytes = copying.copy(self._connection, self._stage, parcels, moved)
        state = "changed" if moved_bytes else "ok"
        whole = sum(parcel.size_bytes for parcel in parcels)
        self._steps.add(Step("copy", state, f"{moved_bytes / MB:.1f} MB of {whole / MB:.1f} MB"))  # type: ignore[arg-type]

    def _on_device(self, steps: list[str], chosen: Offer, python: Python, bundle: str | None, join: str | None) -> None:
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
            "python_drop_in": unit_texts.supervisor_python(interpreter),
            "governor_unit": unit_texts.governor(self._wish.governor or ""),
            "units": {path.name: path.read_text() for path in sorted(UNITS.glob("*.service"))},
            "rules": (UNITS / "70-edgemeter.rules").read_text(),
            "power_mode": self._wish.power_mode,
            "governor": self._wish.governor,
            "join": join,
            "rejoin": self._settings.rejoins,
            "install_s": INSTALL_S,
            "join_s": JOIN_S,
        }
        # JSON within a Python string: what a plan holds is data on the device, whatever stands in it.
        program = f"import json\nPLAN = json.loads({json.dumps(json.dumps(plan))})\n{ON_DEVICE.read_text()}"
        self._steps.now(f"{steps[0]} ...")
        answer = self._root.run([python.path, "-"], program.encode(), INSTALL_S + START_S)
        done = [_step(line) for line in answer.output.splitlines() if line.startswith("{")]
        for step in done:
            self._steps.add(step)
        if answer.status != 0 or len(done) != len(steps):
            missing = steps[len(done)] if len(done) < len(steps) else steps[-1]
            last = (answer.complaint.splitlines() or ["no word"])[-1][:300]
            message = f"{missing} ended on the device: {last}: run it again"
            raise TransientError(message)


def _step(line: str) -> Step:
    try:
        step = msgspec.json.decode(line, type=Step)
    except msgspec.MsgspecError as error:
        message = f"the device says {line[:200]!r}: {error}: run it again"
        raise TransientError(message) from error
    return replace(step, detail="".join(char for char in step.detail if char.isprintable()))
