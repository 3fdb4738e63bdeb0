"""An entry of the catalogue into the cache: its addresses in turn, out of its archive, checked, in one rename, with its card."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from edgemeter.agent import durable_file
from edgemeter.agent.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.recognition import card
from edgemeter.agent.runtimes import model_file
from edgemeter.models import card_file, entries, toml_text
from edgemeter.models.cache import NOTE, Cache, Note
from edgemeter.models.catalogue_entry import FETCHED, Entry
from edgemeter.models.fetch.archive_member import take_out
from edgemeter.models.fetch.download import Want, download
from edgemeter.models.fetch.part import Part
from edgemeter.models.fetch.transport import Transport, shown
from edgemeter.models.progress import Tell

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ways:
    """How to fetch: `mirrors` are folders on servers, asked before the catalogue's own addresses; what has no hash needs consent."""

    transport: Transport = field(default_factory=Transport)
    mirrors: tuple[str, ...] = ()
    accept_unverified: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file in the cache; `is_new` where it was fetched now, `was_verified` where its hash was known before."""

    entry: Entry
    path: Path
    sha256: str
    address: str
    is_new: bool
    was_verified: bool
    removed: tuple[str, ...] = ()


def fetch(entry: Entry, cache: Cache, ways: Ways, tell: Tell, keep: Collection[str] = ()) -> Fetched:
    """Return the entry's file in the cache, fetched where it is not there or is another than the catalogue says.

    Raises:
        ConfigError: nothing is known to check it by, and `ways` does not accept that.
        UnavailableError: it is nowhere to be fetched, or no address has the file that the catalogue means.
        TransientError: it may be fetched later; what has arrived is kept.
    """
    if entry.form not in FETCHED:
        return _own(entry, cache)
    with cache.locked(entry.name):
        there = _there(entry, cache)
        if there is not None:
            return there
        consent(entry, accepted=ways.accept_unverified)
        kept = {*keep, entry.name}
        removed = cache.make_room(entry.size_bytes or 0, kept)
        part, digest, address = _first_good(entry, cache, ways, tell)
        place(entry, cache, part, digest, shown(address))
        removed += cache.make_room(0, kept)
    was_verified = entry.sha256 is not None
    return Fetched(entry, cache.path(entry), digest, shown(address), is_new=True, was_verified=was_verified, removed=tuple(removed))


def consent(entry: Entry, *, accepted: bool) -> None:
    """Refuse an entry that nothing can be checked by, unless that is accepted.

    Raises:
        ConfigError: it is not.
    """
    if entry.sha256 is None and not accepted:
        message = (
            f"{entry.name}: the catalogue knows no sha256 of it ({entry.why or 'none was given'}); --accept-unverified takes it as it "
            "comes, prints the hash, and holds every later file to it"
        )
        raise ConfigError(message)


def place(entry: Entry, cache: Cache, part: Part, digest: str, address: str) -> None:
    """Make a checked part the entry's file, in one rename, and put its card beside it."""
    target = cache.path(entry)
    try:
        size_bytes = part.size_bytes
        (target.parent / NOTE).unlink(missing_ok=True)
        part.path.replace(target)
        part.drop()
        _write_card(entry, target, digest, address)
        cache.keep(Note(entry=entry.name, file=entry.file, sha256=digest, size_bytes=size_bytes, address=address))
        durable_file.sync_folder(target.parent)
    except OSError as error:
        raise part.unwritable(error) from error


def check(entry: Entry, part: Part, origin: str) -> str:
    """Return the hash of what has arrived.

    Raises:
        UnavailableError: it is not the catalogue's; what has arrived is dropped, for it would never become right.
    """
    size_bytes, digest = part.size_bytes, model_file.sha256(part.path)
    if entry.sha256 is not None and digest != entry.sha256:
        part.drop()
        message = f"{origin}: {size_bytes} bytes with sha256 {digest}, the catalogue says {entry.sha256}: not kept"
        raise UnavailableError(message)
    return digest


def _own(entry: Entry, cache: Cache) -> Fetched:
    """Return the user's own file, or the one from a bundle; nobody else has it."""
    path = Path(entry.path) if entry.path else cache.path(entry)
    if path.is_file() and (digest := model_file.sha256(path)) == entry.sha256:
        if entry.path is None:
            cache.touch(path)
        return Fetched(entry, path, digest, str(path), is_new=False, was_verified=True)
    how = entry.how or f"{str(path)!r} is gone or was changed: add or import it again"
    message = f"{entry.name} is nowhere to be fetched ({entry.form}): {how}"
    raise UnavailableError(message)


def _there(entry: Entry, cache: Cache) -> Fetched | None:
    """Return the file that is in the cache already, if it is the one that the catalogue means."""
    held = cache.find(entry.name)
    if held is None:
        return None
    path, note = held
    expected = entry.sha256 or note.sha256
    digest = model_file.sha256(path)
    if digest != expected or path != cache.path(entry):
        logger.warning("%s: the cached file has sha256 %s, not %s: fetching it again", entry.name, digest, expected)
        return None
    cache.touch(path)
    _write_card(entry, path, digest, note.address)
    return Fetched(entry, path, digest, note.address, is_new=False, was_verified=entry.sha256 is not None)


def _first_good(entry: Entry, cache: Cache, ways: Ways, tell: Tell) -> tuple[Part, str, str]:
    """Return the checked part, its hash and its address: of the first address that has what we want."""
    failures: list[EdgemeterError] = []
    for address in _addresses(entry, ways.mirrors):
        try:
            return (*_try(entry, cache, address, ways.transport, tell), address)
        except (TransientError, UnavailableError) as error:
            logger.info("%s", error)
            failures.append(error)
    kind = TransientError if any(isinstance(error, TransientError) for error in failures) else UnavailableError
    message = f"cannot fetch {entry.name}: {'; '.join(str(error) for error in failures)}"
    raise kind(message)


def _try(entry: Entry, cache: Cache, address: str, transport: Transport, tell: Tell) -> tuple[Part, str]:
    target = cache.path(entry)
    if entry.member is None:
        part = Part(target)
        download(address, part, Want(entry.size_bytes, cache.limit_bytes), transport, tell)
    else:
        archive, part = Part(target.with_name(f"{target.name}.archive")), Part(target)
        download(address, archive, Want(None, cache.limit_bytes), transport, tell)
        try:
            take_out(archive.path, entry.member, part, entry.size_bytes or cache.limit_bytes)
        except UnavailableError as error:
            archive.drop()
            message = f"{shown(address)}: {error}"
            raise UnavailableError(message) from error
        archive.drop()
    return part, check(entry, part, shown(address))


def _addresses(entry: Entry, mirrors: Sequence[str]) -> list[str]:
    """Return the mirrors' addresses, then the entry's own; on a mirror the file has the name that it has at home."""
    names = dict.fromkeys(urlsplit(address).path.rpartition("/")[2] for address in entry.addresses)
    return [*(f"{mirror.rstrip('/')}/{name}" for mirror in mirrors for name in names), *entry.addresses]


def _write_card(entry: Entry, model: Path, digest: str, address: str) -> None:
    """Write the card, unless one of this very file is there, which its owner may have corrected."""
    beside = card.beside(model)
    try:
        if beside.exists() and card.read(beside).sha256 == digest:
            return
    except ConfigError:
        logger.info("the card %s cannot be read: writing it again", beside)
    toml_text.write(beside, card_file.text(entries.card_of(entry, digest, address)))
