"""Packs the data sets that suites name: photographs and their ground truth as one archive each, by hash in the fleet's content."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgemeter.agent import dataset
from edgemeter.agent.datasets import yolo
from edgemeter.agent.engine.suites import Settings
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.jobs import data_archive
from edgemeter.agent.jobs.contract import LARGEST_DATA_BYTES, Data
from edgemeter.agent.jobs.data_archive import ANNOTATIONS, IMAGES
from edgemeter.provisioning.content.store import ContentStore

# What an archive takes for one file beside its bytes and twice its name, at most.
_ENTRY_BYTES = 256
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """One data set as cases want it: with each subset and its seed (None: all of it)."""

    images: Path
    annotations: Path | None
    parts: frozenset[tuple[int | None, int]]


class DataPacker:
    """Packs each data set once, however many suites name it."""

    def __init__(self, store: ContentStore) -> None:
        self._store = store
        self._packed: dict[Wanted, Data] = {}

    def pack(self, cases: Iterable[Settings], folder: Path) -> dict[tuple[str, str | None], Data]:
        """Return what orders call the data sets of these cases, by `images` and `annotations` as the cases write them.

        Raises:
            ConfigError: a photograph or its ground truth is missing or cannot be read, or it is more than an order can carry.
            UnavailableError: the content cannot be kept.
        """
        parts: dict[tuple[str, str | None], set[tuple[int | None, int]]] = {}
        for case in cases:
            if case.images is not None:
                parts.setdefault((case.images, case.annotations), set()).add((case.subset, case.seed or 0))
        found = {}
        for (images, annotations), wanted in parts.items():
            of = Wanted(folder / images, None if annotations is None else folder / annotations, frozenset(wanted))
            if of not in self._packed:
                self._packed[of] = self._put(of)
            found[images, annotations] = self._packed[of]
        return found

    def _put(self, wanted: Wanted) -> Data:
        files = _files(wanted)
        _refuse_large(wanted, files)

        content = self._store.put_written(partial(data_archive.write, files), "photographs.zip")
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", _folder_name(wanted.images))[:_LONGEST_NAME]
        return Data(sha256=content.sha256, size_bytes=content.size_bytes, name=f"{content.sha256[:8]}-{plain}.zip")


def _files(wanted: Wanted) -> dict[str, Path]:
    """Return what the archive holds, by its names: opened here first, as a run does, so that what is missing is missed here."""
    if not wanted.images.is_dir():
        message = f"there is no folder of images at {str(wanted.images)!r}: correct the path"
        raise ConfigError(message)
    if wanted.annotations is not None and not wanted.annotations.exists():
        message = f"there are no annotations at {str(wanted.annotations)!r}: correct the path"
        raise ConfigError(message)
    within = f"{IMAGES}/{_folder_name(wanted.images)}"
    opened = [dataset.open_folder(wanted.images, wanted.annotations, subset, seed) for subset, seed in sorted(wanted.parts, key=str)]
    photographs = {path.relative_to(wanted.images).as_posix(): path for one in opened for path in one.needed}
    return {f"{within}/{name}": path for name, path in photographs.items()} | _ground_truth(wanted, photographs)


def _ground_truth(wanted: Wanted, photographs: Iterable[str]) -> dict[str, Path]:
    if wanted.annotations is None:
        return {}
    if not yolo.is_said_by(wanted.annotations):
        return {f"{ANNOTATIONS}/{wanted.annotations.name}": wanted.annotations}
    # Labels may lie in many places relative to the photographs; a folder that holds all of it is one of them.
    labels = yolo.find(wanted.images, wanted.annotations)
    names = "classes.txt" if labels.names.suffix.lower() not in (".yaml", ".yml") else "data.yaml"
    texts = [path for path in map(labels.of, photographs) if path.is_file()]
    return {f"{ANNOTATIONS}/labels/{path.name}": path for path in texts} | {f"{ANNOTATIONS}/labels/{names}": labels.names}


def _folder_name(images: Path) -> str:
    # As a record calls the data set.
    return images.resolve().name or IMAGES


def _refuse_large(wanted: Wanted, files: dict[str, Path]) -> None:
    size_bytes = sum(path.stat().st_size + 2 * len(name.encode(errors="replace")) + _ENTRY_BYTES for name, path in files.items())
    if size_bytes > LARGEST_DATA_BYTES or len(files) > data_archive.MOST_FILES:
        message = (
            f"the data set {str(wanted.images)!r} has {len(files)} files of {size_bytes / 1e6:.1f} MB, an order carries at most "
            f"{data_archive.MOST_FILES} files of {LARGEST_DATA_BYTES / 1e6:.1f} MB: say subset = N, and annotations that name photographs"
        )
        raise ConfigError(message)
