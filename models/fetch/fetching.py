"""An entry of the catalogue into the cache: its addresses in turn, out of its archive, checked, in one rename, with its card."""

import errno
import logging
import lzma
import tarfile
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.download import download, redacted
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.base.toml import write_toml
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import card_path, read_card
from edgemeter.agent.contract.model_file import BROKEN_ZIP
from edgemeter.models.catalogue.catalogue import FETCHED, GENERATION, CatalogueEntry, card_of, change_catalogue
from edgemeter.models.catalogue.shipped_models import card_text
from edgemeter.models.fetch.cache import NOTE, CacheNote, ModelCache

logger = logging.getLogger(__name__)

# All that reading a garbled archive raises; gzip raises OSError too.
_BROKEN = (*BROKEN_ZIP, tarfile.TarError, lzma.LZMAError)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class FetchedModel:
    """A file in the cache; `is_new` if it was fetched now, `was_verified` if its hash was known before."""

    entry: CatalogueEntry
    path: Path
    sha256: str
    address: str
    is_new: bool
    was_verified: bool
    removed: tuple[str, ...] = ()


def fetch(
    entry: CatalogueEntry, cache: ModelCache, report: Tell, keep: Collection[str] = (), *, accepts_unverified: bool = False
) -> FetchedModel:
    """Return the entry's file in the cache, fetched if it is missing or does not match the catalogue.

    Raises:
        ConfigError: the entry has no sha256, and that is not accepted.
        UnavailableError: the entry has no download, or no address has the right file.
        TransientError: a later fetch may succeed; what has arrived is kept.
    """
    if entry.form not in FETCHED:
        return _own_file(entry, cache)
    with cache.locked(entry.name):
        cached = _cached(entry, cache)
        if cached is not None:
            return cached
        if entry.sha256 is None and not accepts_unverified:
            raise ConfigError(
                f"{entry.name}: the catalogue has no sha256 of it ({entry.why or 'none was given'}); it requires --accept-unverified; "
                "later downloads must match the first hash"
            )
        to_keep = {*keep, entry.name}
        removed = cache.make_room(entry.size_bytes or 0, to_keep)
        part, digest, address = _first_good(entry, cache, report)
        _place_file(entry, cache, part, digest, address)
        removed += cache.make_room(0, to_keep)
    was_verified = entry.sha256 is not None
    return FetchedModel(entry, cache.path(entry), digest, address, is_new=True, was_verified=was_verified, removed=tuple(removed))


def _place_file(entry: CatalogueEntry, cache: ModelCache, part: Path, digest: str, address: str) -> None:
    """Make a checked part the entry's file, in one rename, and write its card beside it."""
    target = cache.path(entry)
    try:
        size_bytes = part.stat().st_size
        durable_file.sync(part)
        (target.parent / NOTE).unlink(missing_ok=True)
        part.replace(target)
        _write_card(entry, target, digest, address)
        cache.keep(CacheNote(entry=entry.name, file=entry.file, sha256=digest, size_bytes=size_bytes, address=address))
        durable_file.sync(target.parent)
    except OSError as error:
        raise _unwritable(part, error) from error


def _check_hash(expected: str | None, part: Path, origin: str) -> str:
    """Return the hash of what has arrived.

    Raises:
        UnavailableError: it is not the expected one; what has arrived is dropped, because it can never become right.
    """
    size_bytes, digest = part.stat().st_size, model_file.sha256(part)
    if expected is not None and digest != expected:
        part.unlink()
        raise UnavailableError(f"{origin}: {size_bytes} bytes with sha256 {digest}, the catalogue says {expected}: not kept")
    return digest


def record_accepted(model: FetchedModel, own_catalogue: Path) -> None:
    """Record in the user's catalogue the hash of a file that was accepted without one: later files must match it.

    Raises:
        ConfigError: the catalogue cannot be read or written.
    """
    if model.is_new and not model.was_verified:
        change_catalogue(own_catalogue, hashes={model.entry.name: model.sha256})


def _copy_into(source: IO[bytes], out: Path, limit_bytes: int, name: str) -> None:
    """Write `source` to `out`; errors of reading are left as they are.

    Raises:
        UnavailableError: it is longer than `limit_bytes`; a compressed file can claim any size.
        TransientError: the disk is full.
    """
    # Opened first: what is read may raise an OSError too, and is not ours.
    with out.open("wb") as file:
        while chunk := source.read(1 << 20):
            if file.tell() + len(chunk) > limit_bytes:
                out.unlink()
                raise UnavailableError(f"{name} is larger than the {limit_bytes} bytes expected: rejected")
            try:
                file.write(chunk)
            except OSError as error:
                raise _unwritable(out, error) from error


def _own_file(entry: CatalogueEntry, cache: ModelCache) -> FetchedModel:
    """Return the user's own file, which has no address."""
    path = Path(entry.path) if entry.path else cache.path(entry)
    if path.is_file() and (digest := model_file.sha256(path)) == entry.sha256:
        return FetchedModel(entry, path, digest, str(path), is_new=False, was_verified=True)
    how = entry.how or f"{str(path)!r} is missing or was changed: add it again"
    raise UnavailableError(f"{entry.name} has no download ({entry.form}): {how}")


def _cached(entry: CatalogueEntry, cache: ModelCache) -> FetchedModel | None:
    """Return the cached file, if it is the one in the catalogue."""
    cached_file = cache.find(entry.name)
    if cached_file is None:
        return None
    path, note = cached_file
    expected = entry.sha256 or note.sha256
    digest = model_file.sha256(path)
    if digest != expected or path != cache.path(entry):
        logger.warning("%s: the cached file has sha256 %s, not %s: fetching it again", entry.name, digest, expected)
        return None
    cache.touch(path)
    _write_card(entry, path, digest, note.address)
    return FetchedModel(entry, path, digest, note.address, is_new=False, was_verified=entry.sha256 is not None)


def _first_good(entry: CatalogueEntry, cache: ModelCache, report: Tell) -> tuple[Path, str, str]:
    """Return the checked part, its hash and its address, of the first address that has the right file."""
    failures: list[EdgemeterError] = []
    for address in entry.addresses:
        try:
            part = _download(entry, cache, address, report)
            return part, _check_hash(entry.sha256, part, redacted(address)), redacted(address)
        except (TransientError, UnavailableError) as error:
            logger.info("%s", error)
            failures.append(error)
    message = f"cannot fetch {entry.name}: {'; '.join(map(str, failures))}"
    if any(isinstance(error, TransientError) for error in failures):
        raise TransientError(f"{message}; fetch again: what has arrived is kept")
    raise UnavailableError(message)


def _download(entry: CatalogueEntry, cache: ModelCache, address: str, report: Tell) -> Path:
    target = cache.path(entry)
    part = target.with_name(f".{target.name}.part")
    if entry.member is None:
        if entry.sha256 is None:
            # Nothing would show that its pieces are of two files.
            part.unlink(missing_ok=True)
        _arrive(address, part, entry.size_bytes, cache.limit_bytes, report)
        return part
    archive = part.with_suffix(".archive")
    archive.unlink(missing_ok=True)
    _arrive(address, archive, None, cache.limit_bytes, report)
    try:
        _extract(archive, entry.member, part, entry.size_bytes or cache.limit_bytes)
    except UnavailableError as error:
        raise UnavailableError(f"{redacted(address)}: {error}") from error
    finally:
        archive.unlink(missing_ok=True)
    return part


def _arrive(address: str, part: Path, size_bytes: int | None, limit_bytes: int, report: Tell) -> None:
    try:
        download(address, part, size_bytes, limit_bytes, report)
    except OSError as error:
        raise _unwritable(part, error) from error


def _unwritable(path: Path, error: OSError) -> TransientError:
    """Return our error for a file that cannot be written."""
    if error.errno in _FULL:
        advice = "make room (`edgemeter models cache`, or another folder with --cache)"
        return TransientError(f"no space left in {str(path.parent)!r} for {path.name}: {advice}")
    return TransientError(f"cannot write to {str(path.parent)!r}: {error.strerror}; choose another folder with --cache")


def _extract(archive: Path, member: str, out: Path, limit_bytes: int) -> None:
    """Write the plain file `member` of a .zip or .tar archive to `out`; nothing else of it is written anywhere.

    Raises:
        UnavailableError: it is not an archive, is broken, or has no such file of at most `limit_bytes`.
        TransientError: the disk is full.
    """
    names = []
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                names = opened.namelist()
                if member in names:
                    with opened.open(member) as content:
                        return _copy_into(content, out, limit_bytes, repr(member))
        else:
            with tarfile.open(archive) as tar:
                for info in tar:
                    # Many are packed with `tar czf x.tgz .`, which puts ./ before every name.
                    names.append(info.name.removeprefix("./"))
                    if names[-1] == member and info.isfile() and (extracted := tar.extractfile(info)) is not None:
                        return _copy_into(extracted, out, limit_bytes, repr(member))
    except _BROKEN as error:
        raise UnavailableError(f"the archive with {member!r} cannot be read: {' '.join(str(error).split())}") from error
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    raise UnavailableError(f"the archive has no file {member!r}, but {listed or 'none at all'}")


def _write_card(entry: CatalogueEntry, model: Path, digest: str, address: str) -> None:
    """Write the card, unless it is a language model, or there is one for this very file, which the user may have corrected."""
    if entry.task == GENERATION:
        return
    card_file = card_path(model)
    try:
        if card_file.exists() and read_card(card_file).sha256 == digest:
            return
    except ConfigError:
        logger.info("the card %s cannot be read: writing it again", card_file)
    write_toml(card_file, card_text(card_of(entry, digest, address)))
