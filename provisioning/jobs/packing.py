"""Packs a suite for devices: models with their cards, and photographs with their ground truth, go into the fleet's content by hash.

The suite that travels names them by file name, so that a device measures the same cases on the same data as `edgemeter run` does here.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent.engine import suites
from edgemeter.agent.engine.suites import Settings, SuiteFile
from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.jobs import order_suite
from edgemeter.agent.jobs.contract import Content, Data, Measure
from edgemeter.agent.recognition import card
from edgemeter.agent.runtimes import model_file
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.jobs import suite_text
from edgemeter.provisioning.jobs.data_packing import DataPacker

FETCH_S = 3600.0
SUITE_NAME = "suite.toml"

Find = Callable[[str], Path]


@dataclass(frozen=True, slots=True)
class Packed:
    """What an order names, and what somebody should know about it."""

    title: str
    work: Measure
    notes: tuple[str, ...] = ()


def pack_file(path: Path, store: ContentStore, find: Find | None = None) -> Packed:
    """Return the suite in a TOML file as work for devices; its models are looked for beside the file, then in the catalogue.

    Raises:
        ConfigError: the suite, a model or a data set of it is wrong.
        UnavailableError: a model cannot be fetched, or the content cannot be kept.
    """
    try:
        written = msgspec.toml.decode(path.read_bytes(), type=SuiteFile)
    except OSError as error:
        message = f"cannot read the suite {str(path)!r}: {error.strerror}: give the path of a TOML file"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"suite {str(path)!r}: {error}: correct the key or value"
        raise ConfigError(message) from error
    return pack(written, path.resolve().parent, store, find)


def pack(written: SuiteFile, folder: Path, store: ContentStore, find: Find | None = None, data: DataPacker | None = None) -> Packed:
    """Return a suite as work for devices; `data` is who packs photographs, where several suites may name the same.

    Raises:
        ConfigError: as `pack_file`.
        UnavailableError: as `pack_file`.
    """
    shelf = _Shelf(folder, store, find or fetched)
    cases: list[Settings] = []
    for place, case in enumerate(written.case):
        merged = msgspec.structs.replace(written.defaults, **_said(case))
        where = f"suite {written.name!r}: case[{place}]"
        if merged.options:
            message = f"{where}: options are settings of a library on one machine, which no order may hold: leave them out"
            raise ConfigError(message)
        cases += _spread(merged, shelf, where)
    packed = (data or DataPacker(store)).pack(cases, folder)
    document = _document(written.name, [_with_data(case, packed) for case in cases], shelf)
    suite = store.put_bytes(document, SUITE_NAME)
    by_hash = {one.sha256: one for one in packed.values()}
    return Packed(written.name, Measure(suite=suite, models=tuple(shelf.contents.values()), data=tuple(by_hash.values())))


def fetched(name: str) -> Path:
    """Return the file of a model of the catalogue, which `edgemeter models fetch` brings and checks.

    Raises:
        UnavailableError: the catalogue has none of that name, or it cannot be fetched.
    """
    command = [sys.executable, "-m", "edgemeter.agent.cli", "models", "fetch", name, "--json"]
    said = ""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=FETCH_S)
        said = done.stderr.decode(errors="replace").strip().removeprefix("edgemeter: ")
        return Path(json.loads(done.stdout)["fetched"][0]["path"])
    except (OSError, subprocess.TimeoutExpired, ValueError, LookupError) as error:
        message = f"model {name!r} is no file beside the suite, and `edgemeter models fetch` does not bring it: {said or error}"
        raise UnavailableError(message) from error


def size_note(works: Iterable[Measure]) -> str:
    """Return how much a device fetches that has nothing of it yet."""
    works = list(works)
    everything = {one.sha256: one.size_bytes for work in works for one in work.contents}
    photographs = {one.sha256: one.size_bytes for work in works for one in work.data}
    said = f", {sum(photographs.values()) / 1e6:.1f} MB of it photographs" if photographs else ""
    return f"each device fetches up to {sum(everything.values()) / 1e6:.1f} MB{said}; what it has already does not travel again"


class _Shelf:
    """The models of one suite, by the names that they have on devices."""

    def __init__(self, folder: Path, store: ContentStore, find: Find) -> None:
        self.folder = folder
        self.contents: dict[str, Content] = {}
        self._store = store
        self._find = find
        self._names: dict[Path, str] = {}
        self._paths: dict[str, Path] = {}

    def name(self, model: str) -> str:
        """Return what a model is called on devices, where it goes with its weights and its card."""
        path = self._path(model)
        if path not in self._names:
            parts = [part for part in (*model_file.parts(path), card.beside(path)) if part.exists()]
            held = [(self._store.put(part, _fitting(part.name)), part) for part in parts]
            # Another model has the name already.
            prefix = "" if all(self.contents.get(one.name, one) == one for one, _ in held) else f"{held[0][0].sha256[:8]}-"
            for one, _ in held:
                self.contents[prefix + one.name] = msgspec.structs.replace(one, name=prefix + one.name)
            self._names[path] = prefix + held[0][0].name
            self._paths[self._names[path]] = path
        return self._names[path]

    def local(self, case: Settings) -> Settings:
        """Return a case with the model where it lies here."""
        return msgspec.structs.replace(case, model=str(self._paths[str(case.model)]))

    def _path(self, model: str) -> Path:
        for path in (self.folder / model, order_suite.SHIPPED / model):
            if path.is_file():
                return path.resolve()
        if "/" in model or Path(model).suffix.lower() in suites.FORMATS:
            message = f"there is no model {str(self.folder / model)!r}: correct the path, or name one of the catalogue"
            raise ConfigError(message)
        return self._find(model).resolve()


def _with_data(case: Settings, packed: Mapping[tuple[str, str | None], Data]) -> Settings:
    """Return a case that names its photographs as they are named on devices."""
    if case.images is None:
        return msgspec.structs.replace(case, annotations=None)
    return msgspec.structs.replace(case, images=packed[case.images, case.annotations].name, annotations=None)


def _document(name: str, cases: list[Settings], shelf: _Shelf) -> bytes:
    """Return the suite, read here first as devices will read it."""
    document = suite_text.write(name, cases)
    order_suite.read(document)
    suites.expand(SuiteFile(name=name, case=[shelf.local(case) for case in cases]), shelf.folder)
    return document


def _spread(case: Settings, shelf: _Shelf, where: str) -> list[Settings]:
    """Return one case for each model and precision, named as on devices."""
    if not case.model:
        message = f'{where} names no model: add model = "FILE"'
        raise ConfigError(message)
    models = case.model if isinstance(case.model, list) else [case.model]
    precisions = case.precision if isinstance(case.precision, list) else [case.precision]
    return [
        msgspec.structs.replace(case, model=shelf.name(model.replace("{precision}", precision or "{precision}")), precision=precision)
        for model in models
        for precision in precisions
    ]


def _fitting(name: str) -> str:
    """Return a name that an order may hold."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return plain if plain[0].isalnum() else f"m{plain}"


def _said(settings: Settings) -> dict[str, object]:
    return {key: value for key, value in msgspec.structs.asdict(settings).items() if value is not None}
