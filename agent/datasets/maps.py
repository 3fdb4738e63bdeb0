"""Ground truth of every pixel: a folder with a map for each photograph, of the same name but for its ending (.png or .npy)."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from edgemeter.agent.base.durable_file import sha256_of
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.photographs import list_photographs, photographs_in

SUFFIXES = (".npy", ".png")
# What data sets append to the name of a photograph's map. Source: Cityscapes' and ADE20K's folders.
_ENDINGS = ("", "_gtFine_labelTrainIds", "_gtFine_labelIds", "_seg", "_mask", "_depth")


def holds_maps(folder: Path, annotations: Path | None) -> bool:
    """Return whether the annotations are a folder with a map of one of the photographs at least."""
    if annotations is None or not annotations.is_dir() or not folder.is_dir():
        return False
    try:
        # Labels of YOLO may lie beside their photographs: those are no maps of themselves.
        return not annotations.samefile(folder) and any(_map_of(annotations, name) for name in photographs_in(folder))
    except (ConfigError, OSError):
        return False


def read_maps(folder: Path, annotations: Path) -> tuple[Mapping[str, Path], bytes]:
    """Return the map of each photograph by its name, and what stands for the bytes of all of them.

    Raises:
        ConfigError: a photograph has no map, or one cannot be read; the message names it.
    """
    found: dict[str, Path] = {}
    identity = hashlib.sha256()
    for name in list_photographs(folder):
        path = _map_of(annotations, name)
        if path is None:
            raise ConfigError(f"the photograph {name!r} has no map in {str(annotations)!r}: add {Path(name).stem}.png or .npy")
        found[name] = path
        try:
            identity.update(bytes.fromhex(sha256_of(path)))
        except OSError as error:
            raise ConfigError(f"cannot read the map {str(path)!r}: {error.strerror}") from error
    return found, identity.digest()


def _map_of(annotations: Path, photograph: str) -> Path | None:
    stem = Path(photograph).stem
    starts = dict.fromkeys((stem, stem.removesuffix("_leftImg8bit")))
    names = (f"{start}{ending}{suffix}" for start in starts for ending in _ENDINGS for suffix in SUFFIXES)
    return next((annotations / name for name in names if (annotations / name).is_file()), None)
