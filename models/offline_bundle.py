"""Models for a machine without a network: a zip, or the folder it was unpacked to, with a manifest and the files.

    manifest.json               {"format": "edgemeter-models", "version": 1, "models": [{"entry": ..., "sha256": ..., "size_bytes": ...}]}
    models/ENTRY/FILE           one for each; nothing else is read

Its hashes tell a broken copy; whether it is the right file the catalogue tells, or the user who accepts what the catalogue does not know.
"""

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Literal, Protocol

import msgspec

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.records import Sha256
from edgemeter.models.cache import Cache
from edgemeter.models.catalogue_entry import Entry
from edgemeter.models.fetch.archive_member import BROKEN, copy
from edgemeter.models.fetch.into_cache import Fetched, check, consent, place
from edgemeter.models.fetch.part import Part
from edgemeter.models.progress import Tell

MANIFEST = "manifest.json"
# A thousand entries with every label of ImageNet stay below this.
_MANIFEST_LIMIT_BYTES = 64 << 20


class Packed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a bundle."""

    entry: Entry
    sha256: Sha256
    size_bytes: Annotated[int, msgspec.Meta(gt=0)]

    @property
    def member(self) -> str:
        """Its file in the bundle; entry and file name are such that this stays below `models/`."""
        return f"models/{self.entry.name}/{self.entry.file}"


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a bundle holds."""

    format: Literal["edgemeter-models"] = "edgemeter-models"
    version: Literal[1] = 1
    models: tuple[Packed, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """A bundle, the models of it that are wanted (all, where none are named), and whether such that nothing can be checked by will do."""

    bundle: Path
    names: tuple[str, ...] = ()
    accept_unverified: bool = False


def export(out: Path, chosen: Sequence[tuple[Entry, Path, str]], tell: Tell) -> Manifest:
    """Write the files of `chosen`, each with its entry and hash, to the bundle `out`, all of them or nothing.

    Raises:
        ConfigError: it cannot be written.
    """
    packed = [Packed(entry=_portable(entry), sha256=digest, size_bytes=path.stat().st_size) for entry, path, digest in chosen]
    manifest = Manifest(models=tuple(packed))
    part = out.with_name(f".{out.name}.part")
    try:
        # Models do not get smaller by deflating them; stored, they are as fast to read as they are.
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive:
            archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
            for done, (one, (_, path, _)) in enumerate(zip(packed, chosen, strict=True), 1):
                archive.write(path, one.member)
                tell(one.entry.file, done, len(packed))
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        message = f"cannot write the bundle {str(out)!r}: {error.strerror}"
        raise ConfigError(message) from error
    return manifest


def take(taken: Taken, known: Mapping[str, Entry], cache: Cache, tell: Tell) -> list[Fetched]:
    """Put models of a bundle into the cache.

    Each comes under our own catalogue's entry where there is one, else under the bundle's, and only if that is accepted.

    Raises:
        ConfigError: it is no bundle, has no such model, or has one that our catalogue does not know and that was not accepted.
        UnavailableError: a file is missing, broken, or not the one that the catalogue means.
        TransientError: the disk is full.
    """
    with _opened(taken.bundle) as source:
        manifest = _manifest(source, taken.bundle)
        chosen = {one.entry.name: one for one in manifest.models if not taken.names or one.entry.name in taken.names}
        if absent := [name for name in taken.names if name not in chosen]:
            message = f"bundle {str(taken.bundle)!r} has no {', '.join(absent)}, but {', '.join(one.entry.name for one in manifest.models)}"
            raise ConfigError(message)
        return [_one(source, one, taken, known, cache, tell, keep=list(chosen)) for one in chosen.values()]


class _Source(Protocol):
    """A bundle that is open."""

    def open(self, member: str) -> IO[bytes]:
        """Return the content of a member; KeyError where there is none."""
        ...


class _Folder:
    """A bundle that was unpacked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def open(self, member: str) -> IO[bytes]:
        path = (self._folder / member).resolve()
        # A link may lead out of the folder.
        if not path.is_relative_to(self._folder) or not path.is_file():
            raise KeyError(member)
        return path.open("rb")


@contextmanager
def _opened(path: Path) -> Iterator[_Source]:
    try:
        if path.is_dir():
            yield _Folder(path)
        else:
            with zipfile.ZipFile(path) as archive:
                yield archive
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        message = f"cannot read the bundle {str(path)!r}: {error.strerror}"
        raise ConfigError(message) from error
    except BROKEN as error:
        message = f"bundle {str(path)!r} is broken or no bundle: {error}: copy it again"
        raise ConfigError(message) from error


def _manifest(source: _Source, path: Path) -> Manifest:
    try:
        with source.open(MANIFEST) as file:
            text = file.read(_MANIFEST_LIMIT_BYTES + 1)
        if len(text) > _MANIFEST_LIMIT_BYTES:
            message = f"bundle {str(path)!r}: its manifest is larger than {_MANIFEST_LIMIT_BYTES} bytes"
            raise ConfigError(message)
        return msgspec.json.decode(text, type=Manifest)
    except KeyError as error:
        message = f"{str(path)!r} is no bundle of models: it has no {MANIFEST}; `edgemeter models export-bundle` writes one"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"bundle {str(path)!r}: {MANIFEST}: {error}"
        raise ConfigError(message) from error


def _one(
    source: _Source, packed: Packed, taken: Taken, known: Mapping[str, Entry], cache: Cache, tell: Tell, keep: Sequence[str]
) -> Fetched:
    entry = known.get(packed.entry.name) or msgspec.structs.replace(packed.entry, sha256=None, why="the catalogue here does not know it")
    consent(entry, accepted=taken.accept_unverified)
    if entry.sha256 is not None and entry.sha256 != packed.sha256:
        message = f"{entry.name}: the bundle has sha256 {packed.sha256}, the catalogue says {entry.sha256}: not taken"
        raise UnavailableError(message)
    if packed.size_bytes > cache.limit_bytes:
        message = f"{entry.name}: {packed.size_bytes} bytes are more than the cache may hold, {cache.limit_bytes}: raise --limit-mb"
        raise UnavailableError(message)
    with cache.locked(entry.name):
        removed = cache.make_room(packed.size_bytes, keep)
        part = Part(cache.path(entry))
        part.drop()
        try:
            with source.open(packed.member) as content:
                copy(content, part, packed.size_bytes, f"{packed.member} in the bundle")
        except KeyError as error:
            message = f"bundle {str(taken.bundle)!r} has no {packed.member!r}, which its manifest promises: copy it again"
            raise UnavailableError(message) from error
        checked = msgspec.structs.replace(entry, sha256=packed.sha256)
        digest = check(checked, part, f"{packed.member} in {str(taken.bundle)!r}")
        place(entry, cache, part, digest, f"bundle {taken.bundle.name}")
        tell(entry.file, part.size_bytes, packed.size_bytes)
    address, was_verified = f"bundle {taken.bundle.name}", entry.sha256 is not None
    return Fetched(entry, cache.path(entry), digest, address, is_new=True, was_verified=was_verified, removed=tuple(removed))


def _portable(entry: Entry) -> Entry:
    """Return the entry as it is true elsewhere: where the file lay here is nobody's business."""
    return msgspec.structs.replace(entry, path=None)
