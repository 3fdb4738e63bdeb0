"""Fetches a model of the catalogue into its folder in the cache.

It is downloaded, extracted from an archive, verified, and put in place.
"""

import fcntl
import lzma
import os
import shutil
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from edgemeter.agent.base import config, durable_file
from edgemeter.agent.base.download import download, redacted
from edgemeter.agent.base.errors import (
    ConfigError,
    TransientError,
    UnavailableError,
    one_line,
    os_error_as,
)
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.base.toml import write_toml
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import card_path, read_card
from edgemeter.agent.contract.model_file import BROKEN_ZIP
from edgemeter.models.catalogue.catalogue import (
    GENERATION,
    CatalogueEntry,
    card_of,
    change_catalogue,
)
from edgemeter.models.catalogue.shipped_models import card_text

# Marks a folder as the cache's, and keeps two processes from fetching into it at once: a folder
# without it is never listed or removed.
LOCK = ".edgemeter.lock"
# A file of unknown size is refused above this limit; a compressed one can claim any size.
LARGEST_BYTES = 16_000_000_000
# All errors of reading a garbled archive; gzip raises OSError too.
_BROKEN = (*BROKEN_ZIP, tarfile.TarError, lzma.LZMAError)


def cache_folder() -> Path:
    """Return the folder of fetched models: $EDGEMETER_MODELS, else `models` in the agent's home."""
    return Path(os.environ.get("EDGEMETER_MODELS") or config.home() / "models").expanduser()


def local_file(entry: CatalogueEntry) -> Path:
    """Return the path of the entry's file, also before it is fetched."""
    return Path(entry.path) if entry.path else cache_folder() / entry.name / entry.file


class FetchedFile(NamedTuple):
    """The file of an entry, its sha256, and whether it was fetched now."""

    path: Path
    sha256: str
    is_new: bool


def fetch(entry: CatalogueEntry, report: Tell, *, accepts_unverified: bool = False) -> FetchedFile:
    """Return the entry's file, fetched if it was missing, or did not match the catalogue.

    A card is written next to it. An entry that was accepted without a hash is recorded with it:
    later files must match it.

    Raises:
        ConfigError: the entry has no sha256, and `accepts_unverified` is False.
        UnavailableError: the entry has no download, or its address has a wrong file.
        TransientError: a later attempt may succeed; the part is kept.
    """
    path = local_file(entry)
    if entry.address is None:
        if entry.sha256 is None or not path.is_file() or model_file.sha256(path) != entry.sha256:
            raise UnavailableError(entry.how_to_get)
        return FetchedFile(path, entry.sha256, is_new=False)
    if entry.sha256 is None and not accepts_unverified:
        raise ConfigError(
            "it is unverified and requires --accept-unverified; later downloads must "
            "match the first hash"
        )
    remedy = "make room (`edgemeter models cache`), or name another folder in EDGEMETER_MODELS"
    with os_error_as(TransientError, f"cannot write to the cache {str(path.parent)!r}", remedy):
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / LOCK).open("a") as lock:
            # Another process that fetches it waits here.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.is_file() and (digest := model_file.sha256(path)) == entry.sha256:
                _write_card(entry, path, digest)
                return FetchedFile(path, digest, is_new=False)
            part, digest = _download(entry, entry.address, path, report)
            durable_file.sync(part)
            _write_card(entry, path, digest)
            part.replace(path)
            durable_file.sync(path.parent)
    if entry.sha256 is None:
        change_catalogue(msgspec.structs.replace(entry, sha256=digest, first_seen=True))
    return FetchedFile(path, digest, is_new=True)


def _download(entry: CatalogueEntry, address: str, path: Path, report: Tell) -> tuple[Path, str]:
    """Return the verified file, not yet at `path`, and its hash.

    An interrupted download is continued once, and then by the next fetch.
    """
    part = path.with_name(f".{path.name}.part")
    size_bytes = None if entry.member else entry.size_bytes
    if entry.sha256 is None:
        # Nothing would show that its pieces are of two files.
        part.unlink(missing_ok=True)
    for is_last in (False, True):
        try:
            download(address, part, size_bytes, LARGEST_BYTES, report)
            break
        except TransientError as error:
            if is_last or not part.exists():
                raise TransientError(f"{error}; check the network and fetch again") from error
    file = part
    if entry.member is not None:
        file = path.with_name(f".{path.name}.extracted")
        try:
            _extract(part, entry.member, file, entry.size_bytes or LARGEST_BYTES)
        finally:
            part.unlink()
    digest = model_file.sha256(file)
    if entry.sha256 not in (None, digest):
        problem = f"{redacted(address)}: {file.stat().st_size} bytes with sha256 {digest}"
        # It can never become right.
        file.unlink()
        raise UnavailableError(f"{problem}, the catalogue says {entry.sha256}: not kept")
    return file, digest


def _extract(archive: Path, member: str, out: Path, limit_bytes: int) -> None:
    """Write the plain file `member` of a .zip or .tar archive to `out`; nothing else is written.

    Neither library reads more of a file than the archive declares. Raises UnavailableError if it is
    not an archive, is broken, or has no such file of at most `limit_bytes`.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                sizes = {info.filename: info.file_size for info in opened.infolist()}
                if sizes.get(member, limit_bytes + 1) <= limit_bytes:
                    with opened.open(member) as content, out.open("wb") as file:
                        return shutil.copyfileobj(content, file)
        else:
            with tarfile.open(archive) as tar:
                # Many are packed with `tar czf x.tgz .`, which puts ./ before every name.
                files = {info.name.removeprefix("./"): info for info in tar if info.isfile()}
                sizes = {name: info.size for name, info in files.items()}
                if sizes.get(member, limit_bytes + 1) <= limit_bytes and (
                    packed := tar.extractfile(files[member])
                ):
                    with out.open("wb") as file:
                        return shutil.copyfileobj(packed, file)
    except _BROKEN as error:
        out.unlink(missing_ok=True)
        if getattr(error, "errno", None):
            # The disk failed, not the archive.
            raise
        raise UnavailableError(
            f"the archive with {member!r} cannot be read: {one_line(error)}"
        ) from error
    listed = ", ".join(f"{name} ({size} bytes)" for name, size in list(sizes.items())[:5])
    raise UnavailableError(
        f"the archive has no file {member!r} of at most {limit_bytes} bytes, but "
        f"{listed or 'none at all'}"
    )


def _write_card(entry: CatalogueEntry, model: Path, digest: str) -> None:
    """Write the card of a fetched model.

    A language model gets none, nor does a file with a card of its own, which the user may have
    corrected.
    """
    if entry.task == GENERATION:
        return
    # There may be none, or an unreadable one.
    with suppress(ConfigError):
        if read_card(card_path(model)).sha256 == digest:
            return
    write_toml(card_path(model), card_text(card_of(entry, digest)))
