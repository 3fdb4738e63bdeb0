"""The photographs, or recordings, in a folder, by their names."""

from collections.abc import Sequence
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.items import SOUND

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


def photographs_in(folder: Path) -> list[str]:
    """Return the names of the image files in the folder, sorted.

    Raises:
        ConfigError: the folder cannot be read.
    """
    return _files_in(folder, SUFFIXES)


def _files_in(folder: Path, suffixes: Sequence[str]) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir() if path.suffix.lower() in suffixes and path.is_file())
    except OSError as error:
        raise ConfigError(
            f"cannot read the image folder {str(folder)!r}: {error.strerror}; give the folder that holds the photographs"
        ) from error


def list_items(folder: Path) -> list[str]:
    """Return the names of the photographs in the folder, sorted; of its recordings where it holds no photograph.

    Raises:
        ConfigError: the folder cannot be read, or holds neither.
    """
    names = photographs_in(folder) or _files_in(folder, SOUND)
    if not names:
        raise ConfigError(
            f"no photographs ({', '.join(SUFFIXES)}) and no recordings ({', '.join(SOUND)}) in {str(folder)!r}: give the folder that holds "
            "them itself, not one above it"
        )
    return names


def list_photographs(folder: Path) -> list[str]:
    """Return the names of the image files in the folder, sorted.

    Raises:
        ConfigError: the folder cannot be read, or holds none.
    """
    names = photographs_in(folder)
    if not names:
        raise ConfigError(
            f"no photographs ({', '.join(SUFFIXES)}) in {str(folder)!r}: give the folder that holds them itself, not one above it"
        )
    return names
