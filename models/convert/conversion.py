"""Converting one model to several formats: each is made, compared with the source, and written with a card.

A ruined file is kept for study under another name, `NAME_int8.RUINED.tflite`, so that nothing picks it up by the name asked for; what an
earlier conversion left under that name is removed, because it is not what was asked for now.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.agent import runtimes
from edgemeter.agent.dataset import Dataset
from edgemeter.agent.engine.suites import runtime_for
from edgemeter.agent.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.recognition import card
from edgemeter.agent.runtimes import model_file
from edgemeter.models.convert import describe, formats, parity
from edgemeter.models.convert.answers import Inputs, Pictures, noise_for
from edgemeter.models.convert.calibration import Calibration
from edgemeter.models.convert.formats import Format
from edgemeter.models.convert.make import Facts, Workshop
from edgemeter.models.convert.parity import Parity, Reference
from edgemeter.models.convert.source import Source
from edgemeter.models.progress import Tell

ALL = "all"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. `pictures` are compared and scored on, None where there are none; `role` says in the card what they are."""

    source: Source
    goals: tuple[str, ...]
    out: Path
    calibration: Calibration | None
    pictures: Dataset | None
    role: str
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversion:
    """One file that was written. `stand_in` says what was compared in its place, where this machine cannot run the file itself."""

    format: Format
    path: Path
    made: Facts
    parity: Parity
    stand_in: str | None
    sha256: str
    size_bytes: int


@dataclass(slots=True)
class Outcome:
    """What came of a request."""

    written: list[Conversion] = field(default_factory=list)
    errors: list[EdgemeterError] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def convert(request: Request, tell: Tell, done: Callable[[Conversion], None] = lambda _: None) -> Outcome:
    """Make every format asked for; one that fails does not stop the others.

    Raises:
        ConfigError: a format is unknown, no way leads to it from this source, or `out` cannot be written.
        EdgemeterError: the source itself cannot be run on the pictures.
    """
    outcome = Outcome()
    ways = _ways(request, outcome)
    _make_folder(request.out)
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as name:
        folder = Path(name)
        source = request.source
        (folder / "answers").mkdir()
        expected = parity.reference(source.path, runtime_for(source.path), _inputs(request, None), folder / "answers", tell)
        bench = _Bench(request, expected, folder, tell)
        for way in ways:
            try:
                conversion = bench.convert(way)
            except UnavailableError as error:
                if ALL in request.goals and way[-1].program:
                    outcome.left_out.append(f"{way[-1].name}: {error}")
                else:
                    outcome.errors.append(error)
            except EdgemeterError as error:
                outcome.errors.append(error)
            else:
                outcome.written.append(conversion)
                done(conversion)
    return outcome


def _ways(request: Request, outcome: Outcome) -> list[list[Format]]:
    """Return the steps to each format asked for, in the order of the table."""
    form = request.source.form
    wanted = set(formats.FORMATS) if ALL in request.goals else {formats.find(goal).name for goal in request.goals}
    ways = {name: formats.way(form, name) for name in formats.FORMATS if name in wanted}
    impossible = [name for name, way in ways.items() if way is None and name != form]
    if impossible and ALL not in request.goals:
        message = f"no way leads from {request.source.path.name!r} ({form}) to {', '.join(impossible)}: {_advice(form)}"
        raise ConfigError(message)
    found = [way for way in ways.values() if way is not None]
    if request.calibration is None and ALL in request.goals:
        lacking = [way for way in found if any(step.is_calibrated for step in way)]
        outcome.left_out += [f"{way[-1].name}: needs --calibration FOLDER" for way in lacking]
        found = [way for way in found if way not in lacking]
    if not found:
        message = f"nothing can be made from {request.source.path.name!r} ({form}): {_advice(form)}"
        raise ConfigError(message)
    return found


def _advice(form: str) -> str:
    if form == formats.TORCH:
        return "choose another format"
    if form.endswith("-fp32"):
        return "give the PyTorch model that it was exported from (.pt2 or TorchScript)"
    return "it is no fp32 file; give the fp32 file that it was made from"


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot write to {str(path)!r}: {error.strerror}; choose another folder with --out"
        raise ConfigError(message) from error


def _inputs(request: Request, about: card.Card | None) -> Inputs:
    """Return the pictures for a file with this card (None: the source's), or noise where there are none or the model is unknown."""
    source = request.source
    if source.about is not None and request.pictures is not None:
        return Pictures(about or source.about, request.pictures)
    shape = source.shape() if len(source.loaded.inputs) <= 1 else ()
    return noise_for(source.loaded, shape)


class _Bench:
    """Makes formats one after the other; what one was made from is made once."""

    def __init__(self, request: Request, expected: Reference, folder: Path, tell: Tell) -> None:
        self._request, self._expected, self._folder, self._tell = request, expected, folder, tell
        self._workshop = Workshop(request.source, request.calibration, request.pictures, request.keep, tell)
        self._files: dict[str, tuple[Path, Facts]] = {request.source.form: (request.source.path, {})}
        self._failed: dict[str, EdgemeterError] = {}

    def convert(self, way: Sequence[Format]) -> Conversion:
        """Make the last format of the way, compare it, and write it."""
        for step in way:
            self._make(step)
        goal = way[-1]
        path, made = self._files[goal.name]
        self._tell(f"comparing {goal.name}", 0, 1)
        found, stand_in = self._compare(goal, path)
        return self._write(goal, path, made, found, stand_in)

    def _make(self, step: Format) -> None:
        if step.name in self._files:
            return
        if step.name in self._failed:
            raise self._failed[step.name]
        base, before = self._files[step.base]
        # Converters name what they write after what they read.
        target = self._folder / f"{self._request.source.name}{step.ending}"
        self._tell(f"making {step.name}", 0, 1)
        try:
            facts = self._workshop.make(step, base, target)
        except EdgemeterError as error:
            self._failed[step.name] = error
            raise
        self._files[step.name] = (target, _joined(before, facts))

    def _compare(self, goal: Format, path: Path) -> tuple[Parity, str | None]:
        """Return the parity of the file, or where it cannot run here that of the file it was compiled from, and what that was."""
        try:
            return self._parity(goal, path, goal.precision), None
        except UnavailableError as error:
            if goal.program is None:
                raise
            base = formats.FORMATS.get(goal.base, goal)
            stand_in = f"{base.name}, from which it was compiled: it does not run here ({error})"
            return self._parity(base, self._files[goal.base][0], base.precision), stand_in

    def _parity(self, form: Format, path: Path, precision: str) -> Parity:
        if form.runtime not in runtimes.names():
            message = f"no runtime {form.runtime!r} here"
            raise UnavailableError(message)
        source = self._request.source
        about = None if source.about is None else describe.input_card(source.about, form, source.form)
        return parity.compare(self._expected, path, form.runtime, _inputs(self._request, about), precision, self._tell)

    def _write(self, goal: Format, made_at: Path, made: Facts, found: Parity, stand_in: str | None) -> Conversion:
        request = self._request
        wanted = request.out / f"{request.source.name}{goal.ending}"
        if wanted.exists() and wanted.samefile(request.source.path):
            message = f"{str(wanted)!r} is the source itself: choose another folder with --out"
            raise ConfigError(message)
        ruined = wanted.with_name(f"{wanted.stem}.RUINED{wanted.suffix}")
        path, stale = (ruined, wanted) if found.verdict.state == "ruined" else (wanted, ruined)
        digest = model_file.sha256(made_at)
        conversion = Conversion(goal, path, made, found, stand_in, digest, made_at.stat().st_size)
        try:
            _place(made_at, path)
            describe.write(conversion, request)
            for old in (stale, card.beside(stale), describe.plain_card(stale)):
                old.unlink(missing_ok=True)
        except OSError as error:
            message = f"cannot write {str(path)!r}: {error.strerror}; choose another folder with --out"
            raise ConfigError(message) from error
        return conversion


def _joined(before: Facts, facts: Facts) -> Facts:
    """Return how a file was made with how its base was: every tool that had a hand in it."""
    tools = [str(part["with"]) for part in (before, facts) if "with" in part]
    names = dict.fromkeys(tool for text in tools for tool in text.split(", "))
    return {**before, **facts, **({"with": ", ".join(names)} if names else {})}


def _place(source: Path, target: Path) -> None:
    """Copy a file to its place, whole or not at all."""
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.copyfile(source, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
