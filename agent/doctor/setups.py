"""Set-ups of board, system, runtime and accelerator that fit together (`setups.toml` beside this file), and who tried them.

A set-up names exact packages; that it is listed does not mean that anybody ran it. A trial is derived from the record of a run and its
bundle, never written by hand. A set-up counts as tried only through a trial with the same packages.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.types import Sha256
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.machine import board, fingerprint
from edgemeter.agent.machine.machine import Machine

# run: on the real machine; emulated: the processor was an emulator's, which shows no speed and no accelerator.
TrialLevel = Literal["run", "emulated"]
CPU = "CPU"
INTERPRETERS = ("ai-edge-litert", "tflite-runtime")
_BOARD = r"\A[^|`<>\n]{1,100}\Z"
Text = Annotated[str, msgspec.Meta(pattern=_BOARD)]


class SetupPackage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package of a set-up: where it comes from, and its file with its SHA-256 where these are known."""

    name: str
    version: str
    source: str = "PyPI"
    file: str | None = None
    sha256: Sha256 | None = None


class Setup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Packages that belong together on a board and its system, and the commands that install them.

    `models` are patterns of the board's model, `os` begins the name of its system, `accelerator` begins the name of what is attached.
    """

    os: str
    title: str
    arch: Literal["aarch64", "x86_64"]
    python: str
    runtime: str
    board: str = "any board"
    models: tuple[str, ...] = ("*",)
    accelerator: str = CPU
    packages: tuple[SetupPackage, ...] = ()
    install: tuple[str, ...] = ()
    note: str | None = None

    def fits(self, model: str | None, system: str | None, arch: str, python: str) -> bool:
        """Return whether it is for this board, system and Python."""
        is_for_board = any(fnmatchcase(model or "", pattern) for pattern in self.models)
        return is_for_board and (system or "").startswith(self.os) and (self.arch, self.python) == (arch, python)


class Trial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that was recorded: on what, with which packages, when, and by whom; `bundle_sha256` is the file that shows it."""

    level: TrialLevel
    by: Text
    on: date
    board: Text
    os: Text
    arch: Text
    python: Text
    runtime: Text
    backend: Text
    accelerator: Text
    packages: dict[Text, Text]
    model: Text
    record: Text
    bundle_sha256: Sha256

    def tries(self, setup: Setup) -> bool:
        """Return whether it ran the set-up, package by package."""
        python = ".".join(self.python.split(".")[:2])
        is_same = setup.fits(self.board, self.os, self.arch, python) and self.runtime == setup.runtime
        has_packages = all(_upstream(self.packages.get(package.name, "")) == package.version for package in setup.packages)
        return is_same and self.accelerator.startswith(setup.accelerator) and has_packages


class SetupTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; `part` has how far tests go, by kind and name."""

    system: tuple[dict[str, Any], ...]
    part: dict[str, dict[str, str]]
    trial: tuple[Trial, ...] = ()

    @property
    def setups(self) -> tuple[Setup, ...]:
        """Every set-up, with what it shares with the others of its system."""
        shared = (({**system, **setup}) for system in self.system for setup in system["setup"])
        return tuple(msgspec.convert({name: value for name, value in fields.items() if name != "setup"}, Setup) for fields in shared)

    def tried(self, setup: Setup) -> str:
        """Return who tried a set-up and when, in words."""
        trials = [trial for trial in self.trial if trial.tries(setup)]
        texts = [f"{'' if trial.level == 'run' else f'{trial.level}: '}{trial.by}, {trial.on}" for trial in trials]
        return "; ".join(dict.fromkeys(texts)) or "never tried"


def read_table() -> SetupTable:
    """Return what is known."""
    return msgspec.toml.decode(files(__package__).joinpath("setups.toml").read_bytes(), type=SetupTable)


def setups_for(machine: Machine, accelerator: str, python: str) -> list[Setup]:
    """Return the set-ups of this machine and this Python (`3.13`) for an accelerator by the beginning of its name."""
    model, system = board.model(machine), fingerprint.operating_system(machine)
    return [setup for setup in read_table().setups if setup.accelerator == accelerator and setup.fits(model, system, machine.arch, python)]


def interpreters() -> Mapping[str, str]:
    """Return the interpreter that belongs to each known version of libedgetpu, as a requirement: `16.0tf2.19.1-1` to `NAME==VERSION`."""
    pairs: dict[str, str] = {}
    for setup in read_table().setups:
        library = next((package for package in setup.packages if package.name.startswith("libedgetpu1-")), None)
        interpreter = next((package for package in setup.packages if package.name in INTERPRETERS), None)
        if library and interpreter:
            pairs[library.version] = f"{interpreter.name}=={interpreter.version}"
    return pairs


def interpreter_of(libedgetpu: str) -> str | None:
    """Return the interpreter that belongs to a version of libedgetpu, None if none is known."""
    return interpreters().get(_upstream(libedgetpu))


def _upstream(version: str) -> str:
    """Return a version without what only names the system that it was built for."""
    return re.sub(r"\+cpu\Z|\.(?:trixie|bookworm|bullseye|ubuntu[0-9.]+)\Z", "", version)


def trial_of(record: RunRecord, bundle_sha256: str, by: str, level: TrialLevel = "run") -> Trial:
    """Return the trial that the record of a run shows.

    Raises:
        ConfigError: it shows none: nothing was measured, or the verdict is invalid.
    """
    if record.provenance.get("latency", "measured") != "measured" or record.runtime.name == "replay":
        raise ConfigError(f"the run {record.id} was replayed: measure with a runtime of this machine")
    if record.verdict.state == "invalid":
        raise ConfigError(f"the run {record.id} is invalid ({'; '.join(record.verdict.reasons)[:200]}): repair that and measure again")
    environment, runtime = record.environment, record.runtime
    packages = {runtime.package: runtime.version}
    name, _, version = runtime.facts.get("libedgetpu_package", "").partition(" ")
    if version:
        packages[name] = version
    texts = {
        "board": environment.board or f"{environment.arch} machine{', virtual' if environment.virtualisation else ''}",
        "os": environment.os or "unknown",
        "arch": environment.arch,
        "python": environment.python,
        "runtime": runtime.name,
        "backend": runtime.backend,
        "accelerator": _accelerator(record),
        "model": record.model.file,
        "record": record.id,
    }
    fields = {name: _plain(text) for name, text in texts.items()} | {"level": level, "by": by, "bundle_sha256": bundle_sha256}
    day = datetime.fromtimestamp(record.started_at_ns / 1e9, timezone.utc).date()
    plain_packages = {_plain(name): _plain(version) for name, version in packages.items()}
    try:
        return msgspec.convert({**fields, "on": day, "packages": plain_packages}, Trial)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the run {record.id} makes no row: {error}: give a name of one line") from error


def _accelerator(record: RunRecord) -> str:
    """Return what the run used, by the backend that executed it: an accelerator that is only plugged in did nothing."""
    runtime = record.runtime
    if runtime.name == "edgetpu":
        return next((name.partition(" (")[0] for name in record.environment.attached if name.startswith("Coral")), "Coral")
    if runtime.name == "tensorrt" or re.search(r"cuda|tensorrt", runtime.backend, re.IGNORECASE):
        return "Jetson GPU" if "Jetson" in (record.environment.board or "") else "NVIDIA GPU"
    if re.search(r"cpu|xnnpack|builtin|reference|portable|openmp|torchscript", runtime.backend, re.IGNORECASE) or not runtime.backend:
        return CPU
    return runtime.backend


def _plain(text: str) -> str:
    """Return a text of a record as a cell of a table: one line, without marks of Markdown."""
    return re.sub(r"[|`<>\x00-\x1f\x7f]+", " ", text).strip()[:100] or "unknown"


def as_toml(trials: Sequence[Trial]) -> str:
    """Return trials as blocks of the file."""
    import tomli_w  # noqa: PLC0415 - only where a row is written

    return "\n".join(tomli_w.dumps({"trial": [msgspec.to_builtins(trial, builtin_types=(date,))]}) for trial in trials)
