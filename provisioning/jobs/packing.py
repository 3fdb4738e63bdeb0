"""Packs a suite for devices; its files are stored in the fleet's content by hash.

They are models with their cards, and data sets as one archive each. The suite for devices names
them by file name, so that a device measures the same cases on the same data as `edgemeter run` does
here.
"""

import json
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import IO

import msgspec

from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.links import check_target
from edgemeter.agent.base.toml import toml_document
from edgemeter.agent.contract import data_archive, model_file, order_suite
from edgemeter.agent.contract.case_settings import Settings, is_video
from edgemeter.agent.contract.data_archive import ANNOTATIONS, IMAGES, is_plain
from edgemeter.agent.contract.model_card import card_path
from edgemeter.agent.contract.model_formats import FORMATS
from edgemeter.agent.contract.orders import LARGEST_DATA_BYTES, Content, Data, Measure
from edgemeter.agent.contract.suite import SuiteFile, expand, set_keys
from edgemeter.agent.datasets import dataset, readers, yolo
from edgemeter.agent.recognition.recognise import language_model_name, name_of
from edgemeter.provisioning.serve.content_store import ContentStore, pieces

# The most that an archive needs for one file, besides its bytes and twice its name.
_ENTRY_BYTES = 256
_LONGEST_NAME = 100
_MODE = stat.S_IFREG | 0o644
_UNIX = 3
FETCH_S = 3600.0
SUITE_NAME = "suite.toml"
FindModel = Callable[[str], Path]
# Keys of a case that an order may have; annotations are in the archive of their data. Options are
# refused with a reason of their own.
SENT = order_suite.KEYS | {"annotations", "options"}


def pack_data(
    store: ContentStore, cases: Iterable[Settings], folder: Path
) -> dict[tuple[str, str | None], Data]:
    """Return the data sets of these cases for orders, by `data` and `annotations` of the cases.

    Raises:
        ConfigError: an image or its ground truth is missing or unreadable, or the data set is
            larger than an order allows.
        UnavailableError: the content cannot be stored.
    """
    # By data set: its subsets (None: all of it), each with its seed.
    parts: dict[tuple[str, str | None], set[tuple[int | None, int]]] = {}
    for case in cases:
        if case.data is not None:
            parts.setdefault((case.data, case.annotations), set()).add(
                (case.subset, case.seed or 0)
            )
    packed = {}
    for (images_name, annotations_name), subsets in parts.items():
        images, annotations = (
            folder / images_name,
            None if annotations_name is None else folder / annotations_name,
        )
        files = _files(images, annotations, subsets)
        size_bytes = sum(
            path.stat().st_size + 2 * len(name.encode(errors="replace")) + _ENTRY_BYTES
            for name, path in files.items()
        )
        if size_bytes > LARGEST_DATA_BYTES or len(files) > data_archive.MOST_FILES:
            raise ConfigError(
                f"the data set {str(images)!r} has {len(files)} files of {size_bytes / 1e6:.1f} "
                "MB, an order carries at most "
                f"{data_archive.MOST_FILES} files of {LARGEST_DATA_BYTES / 1e6:.1f} MB: set "
                "subset = N, and annotations that name images"
            )
        content = store.put_written(partial(write_archive, files), "photographs.zip")
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", _folder_name(images))[:_LONGEST_NAME]
        name = f"{content.sha256[:8]}-{plain}.zip"
        packed[images_name, annotations_name] = Data(
            sha256=content.sha256, size_bytes=content.size_bytes, name=name
        )
    return packed


def write_archive(files: Mapping[str, Path], target: IO[bytes]) -> None:
    """Write the archive of these files, by their names in it.

    Raises:
        ConfigError: a file cannot be read, or its name is not possible in an archive.
        OSError: `target` cannot be written.
    """
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(files):
            if not is_plain(name):
                raise ConfigError(
                    f"{name!r} cannot be in an archive of photographs: rename it (UTF-8, no "
                    "control characters, no name above 255 bytes)"
                )
            # The date is the earliest of zip, the mode always the same: only names and bytes
            # distinguish archives.
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = _UNIX, _MODE << 16
            with os_error_as(ConfigError, f"cannot read {str(files[name])!r}"):
                info.file_size = files[name].stat().st_size
            with archive.open(info, "w") as entry:
                for data in pieces(files[name]):
                    entry.write(data)


def _files(
    images: Path, annotations: Path | None, parts: Iterable[tuple[int | None, int]]
) -> dict[str, Path]:
    """Return the files of the archive by name.

    They are opened as in a run, so that a missing file is noticed here.
    """
    if not images.exists():
        raise ConfigError(f"no folder of images at {str(images)!r}: correct the path")
    if annotations is not None and not annotations.exists():
        raise ConfigError(f"no annotations at {str(annotations)!r}: correct the path")
    if is_video(images.name) and images.is_file():
        # Only the device needs the library that reads it.
        return {f"{IMAGES}/{images.name}": images}
    opened = [dataset.open_folder(images, annotations, *part) for part in sorted(parts, key=str)]
    if images.is_file():
        return {f"{IMAGES}/{images.name}": images} | _ground_truth(images, annotations, ())
    within = f"{IMAGES}/{_folder_name(images)}"
    photographs = {
        path.relative_to(images).as_posix(): path for data in opened for path in data.needed
    }
    return {f"{within}/{name}": path for name, path in photographs.items()} | _ground_truth(
        images, annotations, photographs
    )


def _ground_truth(
    images: Path, annotations: Path | None, photographs: Iterable[str]
) -> dict[str, Path]:
    if annotations is None:
        return {}
    if readers.Maps().recognises(images, annotations):
        return {
            f"{ANNOTATIONS}/{annotations.name}/{path.name}": path
            for path in readers.read_maps(images, annotations)[0].values()
        }
    if not yolo.Yolo().recognises(images, annotations):
        return {f"{ANNOTATIONS}/{annotations.name}": annotations}
    # Labels may be in several places relative to the images; one folder with all of them is among
    # these.
    labels = yolo.find_labels(images, annotations)
    names = "classes.txt" if labels.names.suffix.lower() not in (".yaml", ".yml") else "data.yaml"
    texts = [path for path in map(labels.of, photographs) if path.is_file()]
    return {f"{ANNOTATIONS}/labels/{path.name}": path for path in texts} | {
        f"{ANNOTATIONS}/labels/{names}": labels.names
    }


def _folder_name(images: Path) -> str:
    # The name of the data set in records.
    return images.resolve().name or IMAGES


def size_note(work: Measure) -> str:
    """Return the download size for a device without any of it."""
    sizes = {content.sha256: content.size_bytes for content in work.contents}
    data_bytes = sum(data.size_bytes for data in work.data)
    images = f", {data_bytes / 1e6:.1f} MB of it images" if data_bytes else ""
    return (
        f"each device downloads at most {sum(sizes.values()) / 1e6:.1f} MB{images} and nothing "
        "that it has already"
    )


def pack(
    written: SuiteFile, folder: Path, store: ContentStore, find: FindModel | None = None
) -> Measure:
    """Return a suite, whose paths start in `folder`, as work for devices.

    Its models are searched there, then in the catalogue.

    Raises:
        ConfigError: the suite, a model or a data set of it is wrong.
        UnavailableError: a model cannot be fetched, or the content cannot be stored.
    """
    models = _SuiteModels(folder, store, find or fetch_model)
    cases: list[Settings] = []
    for index, case in enumerate(written.case):
        merged = msgspec.structs.replace(written.defaults, **set_keys(case))
        where = f"suite {written.name!r}, case {index + 1}"
        if order_suite.is_code(None, merged.runtime):
            raise ConfigError(f"{where}: {order_suite.CODE}")
        if merged.options:
            raise ConfigError(
                f"{where}: options are library settings of one machine, which an order cannot "
                "contain: leave them out"
            )
        if unsent := [key for key in set_keys(merged) if key not in SENT]:
            raise ConfigError(
                f"{where}: an order cannot contain {unsent[0]}: leave it out, or measure on the "
                "board itself"
            )
        if not merged.model:
            raise ConfigError(f'{where} names no model: add model = "FILE"')
        case_models = merged.model if isinstance(merged.model, list) else [merged.model]
        cases += [
            msgspec.structs.replace(merged, model=models.name(model)) for model in case_models
        ]
    packed = pack_data(store, cases, folder)
    # Annotations are in the archive of their data.
    named = [
        msgspec.structs.replace(
            case,
            data=None if case.data is None else packed[case.data, case.annotations].name,
            annotations=None,
        )
        for case in cases
    ]
    suite = store.put_bytes(_document(written, named, models), SUITE_NAME)
    by_hash = {data.sha256: data for data in packed.values()}
    return Measure(
        suite=suite, models=tuple(models.contents.values()), data=tuple(by_hash.values())
    )


def fetch_model(name: str) -> Path:
    """Return the file of a catalogue's model, verified by `edgemeter models fetch`.

    Raises:
        UnavailableError: the model cannot be fetched.
    """
    command = [
        sys.executable,
        "-m",
        "edgemeter.agent.cli.main",
        "models",
        "fetch",
        name,
        "--format",
        "json",
    ]
    printed = ""
    try:
        completed = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=FETCH_S
        )
        printed = completed.stderr.decode(errors="replace").strip().removeprefix("edgemeter: ")
        return Path(json.loads(completed.stdout)["fetched"][0]["path"])
    except (OSError, subprocess.TimeoutExpired, ValueError, LookupError) as error:
        raise UnavailableError(
            f"model {name!r} is not a file next to the suite, and `edgemeter models fetch` "
            f"cannot fetch it: {printed or error}"
        ) from error


class _SuiteModels:
    """The models of one suite, by their names on devices."""

    def __init__(self, folder: Path, store: ContentStore, find: FindModel) -> None:
        self.folder = folder
        self.contents: dict[str, Content] = {}
        self._store = store
        self._find = find
        self._names: dict[Path, str] = {}
        self._paths: dict[str, Path] = {}

    def name(self, model: str) -> str:
        """Return the name of a model on devices, to which it is sent with its weights and its card.

        Raises:
            ConfigError: one of these is a link to a file of another type.
        """
        path = self._path(model)
        if path not in self._names:
            parts = [part for part in (*model_file.parts(path), card_path(path)) if part.exists()]
            for part in parts[1:]:
                if part.is_symlink():
                    check_target(part)
            stored = [(self._store.put(part, _fitting(part.name)), part) for part in parts]
            # A prefix if another model has the name already.
            prefix = (
                ""
                if all(self.contents.get(content.name, content) == content for content, _ in stored)
                else f"{stored[0][0].sha256[:8]}-"
            )
            for content, _ in stored:
                self.contents[prefix + content.name] = msgspec.structs.replace(
                    content, name=prefix + content.name
                )
            self._names[path] = prefix + stored[0][0].name
            self._paths[self._names[path]] = path
        return self._names[path]

    def local(self, case: Settings) -> Settings:
        """Return a case with the path of its model on this machine."""
        return msgspec.structs.replace(case, model=str(self._paths[str(case.model)]))

    def named(self, case: Settings) -> Settings:
        """Return a case with its model's name in runs of this machine.

        It is added only if the model's file has another name on devices.
        """
        path = self._paths[str(case.model)]
        if case.name or case.model == path.name:
            return case
        (single, *_) = expand(
            SuiteFile(
                name="named", case=[msgspec.structs.replace(self.local(case), together=None)]
            ),
            self.folder,
        ).cases
        if single.output_tokens is not None:
            return msgspec.structs.replace(case, name=language_model_name(path))
        return (
            case if card_path(path).exists() else msgspec.structs.replace(case, name=name_of(path))
        )

    def _path(self, model: str) -> Path:
        if order_suite.is_code(model, None):
            raise ConfigError(f"an order cannot contain {model!r}: {order_suite.CODE}")
        for path in (self.folder / model, order_suite.SHIPPED / model):
            if path.is_file():
                return path.resolve()
        if "/" in model or Path(model).suffix.lower() in FORMATS:
            raise ConfigError(
                f"no model at {str(self.folder / model)!r}: correct the path, or name one "
                "of the catalogue"
            )
        return self._find(model).resolve()


def _document(written: SuiteFile, cases: list[Settings], models: _SuiteModels) -> bytes:
    """Return the suite with these cases as TOML, after reading it as devices will."""
    document = _toml(written, cases)
    order_suite.read(document)
    expand(SuiteFile(name=written.name, case=[models.local(case) for case in cases]), models.folder)
    return (
        document
        if (named := [models.named(case) for case in cases]) == cases
        else _toml(written, named)
    )


def _toml(written: SuiteFile, cases: list[Settings]) -> bytes:
    suite = {
        "name": written.name,
        "matters_ratio": written.matters_ratio,
        "case": [msgspec.structs.asdict(case) for case in cases],
    }
    return toml_document(suite).encode()


def _fitting(name: str) -> str:
    """Return a name that an order may contain."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return plain if plain[0].isalnum() else f"m{plain}"
