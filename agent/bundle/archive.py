"""The zip around a bundle: written the same for the same content, read without trust."""

import io
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from edgemeter.agent import samples
from edgemeter.agent.bundle import manifest
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes.model_file import BROKEN_ZIP, COMPRESSIONS

# Far above what a run makes, far below what hurts: ten minutes of 0.1 ms queries are 72 MB.
FILE_BYTES = 256 * 1024 * 1024
TOTAL_BYTES = 512 * 1024 * 1024
TEXT_BYTES = 16 * 1024 * 1024
MEMBERS = 256
# The earliest date that a zip can say: the time of writing is no part of a bundle.
EPOCH = (1980, 1, 1, 0, 0, 0)
# The quickest: a device writes between two runs, and must not get warm by it.
COMPRESSION = 1
_ENCRYPTED = 0x1


def pack(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a zip of the files, in their order: the same bytes for the same files, wherever the same zlib writes them."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files:
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, content, compresslevel=COMPRESSION)
    return target.getvalue()


def unpack(path: Path) -> Mapping[str, bytes]:
    """Return the files of a bundle by name.

    Raises:
        ConfigError: it cannot be read, is no bundle, is damaged, or holds what no bundle holds.
    """
    try:
        size = path.stat().st_size
        if size > FILE_BYTES:
            message = f"{str(path)!r} is {size / 1e6:.0f} MB, more than a bundle can be: it was not written by edgemeter"
            raise ConfigError(message)
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            _check(path, infos)
            return {info.filename: _read(archive, info) for info in infos}
    except BROKEN_ZIP as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        message = f"cannot read the bundle {str(path)!r}: {reason}; copy it again from where it was written"
        raise ConfigError(message) from error


def _check(path: Path, infos: list[zipfile.ZipInfo]) -> None:
    names = [info.filename for info in infos]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(infos) <= MEMBERS else []
    wrong = None
    if len(infos) > MEMBERS:
        wrong = f"holds {len(infos)} files, a bundle has at most {MEMBERS}"
    elif twice:
        wrong = f"holds {twice[0]!r} more than once"
    elif sum(info.file_size for info in infos) > TOTAL_BYTES:
        wrong = f"would expand to more than {TOTAL_BYTES // 1024 // 1024} MiB"
    wrong = wrong or next(filter(None, map(_wrong, infos)), None)
    if wrong:
        message = f"{str(path)!r} {wrong}: it was not written by edgemeter"
        raise ConfigError(message)


def _wrong(info: zipfile.ZipInfo) -> str | None:
    if info.orig_filename != info.filename or not manifest.NAME.match(info.filename):
        return f"holds a file {info.orig_filename!r}, which no bundle has"
    if info.compress_type not in COMPRESSIONS or info.flag_bits & _ENCRYPTED:
        return f"holds {info.filename!r} encrypted, or compressed by a method that no bundle uses"
    if info.file_size > _limit_bytes(info.filename):
        return f"holds {info.filename!r} of {info.file_size} bytes, more than it can be"
    return None


def _limit_bytes(name: str) -> int:
    return samples.LIMIT_BYTES if name.startswith("samples/") else TEXT_BYTES


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return a member's content: never more than the size that was checked, with its checksum looked at."""
    with archive.open(info) as member:
        content = member.read(info.file_size + 1)
    if len(content) != info.file_size:
        message = f"{info.filename} has {len(content)} bytes, its header says {info.file_size}"
        raise zipfile.BadZipFile(message)
    return content
