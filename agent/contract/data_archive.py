"""A data set as it travels: one zip archive, not compressed, with the same bytes for the same photographs.

    images/FOLDER/...     the photographs, by the names that the ground truth has for them
    images/NAME           or the one file that holds all items
    annotations/NAME      the ground truth, where there is one: a file, or a folder of labels

What is taken out of one is plain new files in a new folder. A link, a path that leads out of it, a name that stands there twice or more
bytes than the archive has refuse all of it, before anything is written.
"""

import shutil
import stat
import struct
import zipfile
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from edgemeter.agent.base.errors import ConfigError, UnavailableError

IMAGES, ANNOTATIONS = "images", "annotations"
MOST_FILES = 200_000
MOST_FOLDERS = 16
LONGEST_NAME_BYTES = 255
PIECE_BYTES = 1 << 20
# What a file takes beside its bytes: the rest of its last block, and its entry in the folder.
BLOCK_BYTES = 4096
_MODE = stat.S_IFREG | 0o644
_UNIX = 3


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Where photographs and their ground truth stand."""

    images: Path
    annotations: Path | None


class Target(Protocol):
    """The destination of an archive, written from its beginning to its end."""

    def write(self, content: bytes, /) -> int:
        """Take the next bytes, and return how many."""

    def flush(self) -> None:
        """Hold nothing back."""

    def close(self) -> None:
        """Take nothing more; an archive does not call it."""


def write(files: Mapping[str, Path], target: Target) -> None:
    """Write the archive of these files, by their names in it.

    Raises:
        ConfigError: a file cannot be read, or its name is none for an archive.
        OSError: `target` cannot be written.
    """
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(files):
            if not is_plain(name):
                raise ConfigError(
                    f"{name!r} cannot be in an archive of photographs: rename it (UTF-8, no control characters, no name above 255 bytes)"
                )
            _put_in(archive, name, files[name])


def is_plain(name: str) -> bool:
    """Return whether that is a path in an archive which leads nowhere else: `images/FILE` or `annotations/FILE` or deeper."""
    first, *parts = name.split("/")
    at_least = {IMAGES: 1, ANNOTATIONS: 1}.get(first)
    if at_least is None or not at_least <= len(parts) <= MOST_FOLDERS:
        return False
    return all(part not in ("", ".", "..") and _is_name(part) for part in parts)


def unpack(archive: Path, folder: Path) -> None:
    """Take all that is in the archive out of it, into `folder`, which is there and empty.

    Raises:
        ConfigError: it is not an archive of images, or holds what it may not.
        UnavailableError: there is no space, or the files cannot be written.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            infos = opened.infolist()
            if problem := _problem(infos, archive.stat().st_size):
                raise ConfigError(f"the archive of images {archive.name[:12]} is refused: {problem}")
            _must_fit(infos, folder)
            for info in infos:
                _take_out(opened, info, folder / info.filename)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, struct.error) as error:
        raise ConfigError(f"the archive of images {archive.name[:12]} cannot be read: {error}") from error
    except OSError as error:
        raise UnavailableError(
            f"cannot unpack photographs below {str(folder.parent)!r} ({error.strerror}): check that the folder may be written"
        ) from error


def find(folder: Path) -> DataFolder:
    """Return where photographs and ground truth stand in a folder that an archive was unpacked to; raises ConfigError if they do not."""
    images, annotations = (sorted((folder / name).iterdir()) if (folder / name).is_dir() else [] for name in (IMAGES, ANNOTATIONS))
    if len(images) != 1 or len(annotations) > 1:
        raise ConfigError(f"the archive of images is refused: it holds {len(images)} folders of them and {len(annotations)} of annotations")
    return DataFolder(images[0], annotations[0] if annotations else None)


def _is_name(part: str) -> bool:
    try:
        return len(part.encode()) <= LONGEST_NAME_BYTES and not any(ord(letter) < 32 or letter == "\x7f" for letter in part)
    except UnicodeEncodeError:
        return False


def _put_in(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    # The date is zip's first, the mode always the same: nothing but names and bytes makes one archive another.
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = _UNIX, _MODE << 16
    try:
        source = path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from error
    with source:
        info.file_size = path.stat().st_size
        with archive.open(info, "w") as target:
            while chunk := _read(source, path):
                target.write(chunk)


def _read(source: IO[bytes], path: Path) -> bytes:
    try:
        return source.read(PIECE_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot read {str(path)!r}: {error.strerror}")


def _problem(infos: Sequence[zipfile.ZipInfo], archive_bytes: int) -> str | None:
    if len(infos) > MOST_FILES:
        return f"it holds {len(infos)} files, at most {MOST_FILES} are taken"
    names = {info.filename for info in infos}
    if len(names) < len(infos):
        return "a name stands there twice"
    if sum(info.file_size for info in infos) > archive_bytes:
        return "it claims more content than it has bytes"
    return next((f"{info.filename[:100]!r} {problem}" for info in infos if (problem := _problem_of(info, names))), None)


def _problem_of(info: zipfile.ZipInfo, names: AbstractSet[str]) -> str | None:
    if not is_plain(info.filename):
        return "is not a plain name"
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
        return "is not a plain file"
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        return "is compressed"
    if not names.isdisjoint(map(str, PurePosixPath(info.filename).parents)):
        return "is in another file"
    return None


def _must_fit(infos: Sequence[zipfile.ZipInfo], folder: Path) -> None:
    needed_bytes = sum(info.file_size + 2 * BLOCK_BYTES for info in infos)
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise UnavailableError(
            f"no space: {len(infos)} photographs and their annotations need {needed_bytes / 1e6:.1f} MB, {free / 1e6:.1f} MB are free"
        )


def _take_out(opened: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened.open(info) as source, path.open("xb") as target:
        shutil.copyfileobj(source, target, PIECE_BYTES)
