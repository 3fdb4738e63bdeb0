"""The photographs in a folder, by their names."""

from pathlib import Path

from edgemeter.agent.base.errors import ConfigError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


def photographs_in(folder: Path) -> list[str]:
    """Return the names of the image files in the folder, sorted.

    Raises:
        ConfigError: the folder cannot be read.
    """
    try:
        return sorted(path.name for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    except OSError as error:
        raise ConfigError(
            f"cannot read the image folder {str(folder)!r}: {error.strerror}; give the folder that holds the photographs"
        ) from error


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
