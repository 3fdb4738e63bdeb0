"""Models for a machine without a network: a zip, or the folder it was unpacked to, with a manifest and the files.

    manifest.json               {"format": "edgemeter-models", "version": 1, "models": [{"entry": ..., "sha256": ..., "size_bytes": ...}]}
    models/ENTRY/FILE           one for each; nothing else is read

Its hashes detect a broken copy; that it is the right file, the catalogue decides, or the user who accepts what the catalogue does not have.
"""

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Literal

import msgspec

from edgemeter.agent.base.durable_file import replacing
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.base.types import Sha256
from edgemeter.agent.contract import model_file
from edgemeter.models.catalogue.catalogue import CatalogueEntry
from edgemeter.models.fetch.cache import ModelCache
from edgemeter.models.fetch.download import PartFile
from edgemeter.models.fetch.fetching import BROKEN, FetchedModel, check_hash, copy_into, place_file, require_hash

MANIFEST = "manifest.json"
# A thousand entries with every label of ImageNet stay below this.
_MANIFEST_LIMIT_BYTES = 64 << 20
# Opens a member of a model archive; raises KeyError if there is none of that name.
_Open = Callable[[str], IO[bytes]]


class ArchivedModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a model archive."""

    entry: CatalogueEntry
    sha256: Sha256
    size_bytes: Annotated[int, msgspec.Meta(gt=0)]

    @property
    def member(self) -> str:
        """Its file in the model archive; the patterns of entry and file names keep it below `models/`."""
        return f"models/{self.entry.name}/{self.entry.file}"


class ModelsManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of a model archive."""

    format: Literal["edgemeter-models"] = "edgemeter-models"
    version: Literal[1] = 1
    models: tuple[ArchivedModel, ...]


def export_models(out: Path, entries: Sequence[CatalogueEntry], cache: ModelCache, report: Tell) -> ModelsManifest:
    """Write the files of the entries, each with its entry and hash, to the model archive `out`, all of them or nothing.

    Raises:
        UnavailableError: a file is missing.
        ConfigError: a file is not the one that was fetched or added, or not a single file; or `out` cannot be written.
    """
    exported = [(entry, *_exportable(entry, cache)) for entry in entries]
    # The path of a user's own file is of no use elsewhere.
    manifest = ModelsManifest(
        models=tuple(
            ArchivedModel(entry=msgspec.structs.replace(entry, path=None), sha256=digest, size_bytes=path.stat().st_size)
            for entry, path, digest in exported
        )
    )
    # Models hardly get smaller by compression; stored, they are read fastest.
    with (
        os_error_as(ConfigError, f"cannot write the model archive {str(out)!r}"),
        replacing(out, 0o644) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive,
    ):
        archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
        for count, (model, (_, path, _)) in enumerate(zip(manifest.models, exported, strict=True), 1):
            archive.write(path, model.member)
            report(model.entry.file, count, len(exported))
    return manifest


def _exportable(entry: CatalogueEntry, cache: ModelCache) -> tuple[Path, str]:
    """Return the entry's file and its hash."""
    path, note = cache.local_file(entry)
    if path is None or not path.is_file():
        raise UnavailableError(f"{entry.name} is not fetched: run `edgemeter models fetch {entry.name}` first")
    if len(model_file.parts(path)) > 1:
        raise ConfigError(
            f"{entry.name} has its weights in a second file, and an archive holds one file a model: copy both by hand and add them there"
        )
    digest = model_file.sha256(path)
    expected = entry.sha256 or (note.sha256 if note else None)
    if digest != expected:
        raise ConfigError(f"{str(path)!r} has sha256 {digest}, not {expected}: it was changed, fetch or add it again")
    return path, digest


def import_models(
    path: Path, names: Sequence[str], entries: Mapping[str, CatalogueEntry], cache: ModelCache, report: Tell, *, accepts_unverified: bool
) -> list[FetchedModel]:
    """Import the models of these names from an archive into the cache, all of them if there are no names.

    Each is imported under the entry of our catalogue; if there is none, under the model archive's, which has to be accepted.

    Raises:
        ConfigError: it is not a model archive, has no such model, or has one that is not in our catalogue and was not accepted.
        UnavailableError: a file is missing, broken, or not the one in the catalogue.
        TransientError: the disk is full.
    """
    with _opened(path) as open_member:
        manifest = _manifest(open_member, path)
        selected = {model.entry.name: model for model in manifest.models if not names or model.entry.name in names}
        if absent := [name for name in names if name not in selected]:
            present = ", ".join(model.entry.name for model in manifest.models)
            raise ConfigError(f"model archive {str(path)!r} has no {', '.join(absent)}, but {present}")
        imported = []
        for model in selected.values():
            name = model.entry.name
            entry = entries.get(name) or msgspec.structs.replace(model.entry, sha256=None, why="the catalogue here does not have it")
            require_hash(entry, accepts_unverified=accepts_unverified)
            imported.append(_import(open_member, model, entry, path, cache, list(selected)))
            report(entry.file, model.size_bytes, model.size_bytes)
        return imported


def _import(
    open_member: _Open, model: ArchivedModel, entry: CatalogueEntry, archive: Path, cache: ModelCache, keep: Sequence[str]
) -> FetchedModel:
    if entry.sha256 not in (None, model.sha256):
        raise UnavailableError(f"{entry.name}: the model archive has sha256 {model.sha256}, the catalogue says {entry.sha256}: rejected")
    if model.size_bytes > cache.limit_bytes:
        raise UnavailableError(
            f"{entry.name}: {model.size_bytes} bytes are more than the cache may hold, {cache.limit_bytes}: raise --limit-mb"
        )
    address = f"model archive {archive.name}"
    with cache.locked(entry.name):
        removed = cache.make_room(model.size_bytes, keep)
        part = PartFile(cache.path(entry))
        try:
            with open_member(model.member) as content:
                copy_into(content, part, model.size_bytes, f"{model.member} in the model archive")
        except KeyError as error:
            raise UnavailableError(
                f"model archive {str(archive)!r} has no {model.member!r}, which its manifest promises: copy it again"
            ) from error
        check_hash(model.sha256, part, f"{model.member} in {str(archive)!r}")
        place_file(entry, cache, part, model.sha256, address)
    was_verified = entry.sha256 is not None
    return FetchedModel(entry, cache.path(entry), model.sha256, address, is_new=True, was_verified=was_verified, removed=tuple(removed))


@contextmanager
def _opened(path: Path) -> Iterator[_Open]:
    try:
        if path.is_dir():
            yield partial(_open_file, path.resolve())
        else:
            with zipfile.ZipFile(path) as archive:
                yield archive.open
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise ConfigError(f"cannot read the model archive {str(path)!r}: {error.strerror}") from error
    except BROKEN as error:
        raise ConfigError(f"model archive {str(path)!r} is broken or not a model archive: {error}: copy it again") from error


def _open_file(folder: Path, member: str) -> IO[bytes]:
    path = (folder / member).resolve()
    # A link may lead out of the folder.
    if not path.is_relative_to(folder) or not path.is_file():
        raise KeyError(member)
    return path.open("rb")


def _manifest(open_member: _Open, path: Path) -> ModelsManifest:
    try:
        with open_member(MANIFEST) as file:
            text = file.read(_MANIFEST_LIMIT_BYTES + 1)
        if len(text) > _MANIFEST_LIMIT_BYTES:
            raise ConfigError(f"model archive {str(path)!r}: its manifest is larger than {_MANIFEST_LIMIT_BYTES} bytes")
        return decode_json(text, ModelsManifest)
    except KeyError as error:
        raise ConfigError(
            f"{str(path)!r} is not a model archive: it has no {MANIFEST}; `edgemeter models export-archive` writes one"
        ) from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"model archive {str(path)!r}: {MANIFEST}: {error}") from error
