"""Unpacks a data set's archive: plain new files in a new folder.

The whole archive is refused, before anything is written, for a link, a path that leads out of it, a
duplicate name, or more bytes than the archive has.
"""

import shutil
import stat
import struct
import zipfile
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.data_archive import ANNOTATIONS, IMAGES, MOST_FILES, is_plain

PIECE_BYTES = 1 << 20
# Overhead of a file on disk: the rest of its last block, and its directory entry.
BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The folders of photographs and ground truth."""

    images: Path
    annotations: Path | None


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the archive into `folder`, which exists and is empty.

    Raises:
        ConfigError: it is not an archive of images, or contains files that are not allowed.
        UnavailableError: there is no space, or the files cannot be written.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            infos = opened.infolist()
            if problem := _problem(infos, archive.stat().st_size):
                raise ConfigError(
                    f"the archive of images {archive.name[:12]} is refused: {problem}"
                )
            _must_fit(infos, folder)
            for info in infos:
                _take_out(opened, info, folder / info.filename)
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        EOFError,
        ValueError,
        struct.error,
    ) as error:
        raise ConfigError(
            f"the archive of images {archive.name[:12]} cannot be read: {error}"
        ) from error
    except OSError as error:
        raise UnavailableError(
            f"cannot unpack photographs below {str(folder.parent)!r} ({error.strerror}): check "
            "that the folder may be written"
        ) from error


def find(folder: Path) -> DataFolder:
    """Return photographs and ground truth in an unpacked folder.

    Raises:
        ConfigError: they are missing.
    """
    images, annotations = (
        sorted((folder / name).iterdir()) if (folder / name).is_dir() else []
        for name in (IMAGES, ANNOTATIONS)
    )
    if len(images) != 1 or len(annotations) > 1:
        raise ConfigError(
            f"the archive of images is refused: it contains {len(images)} folders of them and "
            f"{len(annotations)} of annotations"
        )
    return DataFolder(images[0], annotations[0] if annotations else None)


def _problem(infos: Sequence[zipfile.ZipInfo], archive_bytes: int) -> str | None:
    if len(infos) > MOST_FILES:
        return f"it contains {len(infos)} files, at most {MOST_FILES} are accepted"
    names = {info.filename for info in infos}
    if len(names) < len(infos):
        return "a name appears twice"
    if sum(info.file_size for info in infos) > archive_bytes:
        return "it claims more content than it has bytes"
    return next(
        (
            f"{info.filename[:100]!r} {problem}"
            for info in infos
            if (problem := _problem_of(info, names))
        ),
        None,
    )


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
            f"no space: {len(infos)} photographs and their annotations need "
            f"{needed_bytes / 1e6:.1f} MB, {free / 1e6:.1f} MB are free"
        )


def _take_out(opened: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened.open(info) as source, path.open("xb") as target:
        shutil.copyfileobj(source, target, PIECE_BYTES)
