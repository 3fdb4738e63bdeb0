"""The catalogue: `catalogue.toml` here, and above it the user's own, whose entries replace those of the same name."""

import difflib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from edgemeter.agent import config
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card
from edgemeter.agent.records import Sha256
from edgemeter.models import toml_text
from edgemeter.models.catalogue_entry import Entry, EntryName

FILE = Path(__file__).parent / "catalogue.toml"
LABEL_MAPS = Path(__file__).parent / "label_maps.toml"


class LabelMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The names of a model's classes in class order, a class that is not used as an empty name; empty where the file brings them."""

    about: str
    labels: tuple[str, ...] = ()


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A catalogue file. `seen` are the hashes of files whose catalogue entry has none, as first fetched: entry name -> sha256."""

    entry: tuple[Entry, ...] = ()
    seen: dict[EntryName, Sha256] = {}


def own_file() -> Path:
    """Return where the user's own catalogue lies, whether or not it is there: $EDGEMETER_CATALOGUE, else in the agent's home."""
    return Path(os.environ.get("EDGEMETER_CATALOGUE") or config.home() / "catalogue.toml").expanduser()


def read(path: Path) -> Catalogue:
    """Return the catalogue in `path`.

    Raises:
        ConfigError: it cannot be read, has a wrong or unknown key (named with its path), or a name twice.
    """
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=Catalogue)
    except OSError as error:
        message = f"cannot read the catalogue {str(path)!r}: {error.strerror}"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"catalogue {str(path)!r}: {error}: correct the key or value"
        raise ConfigError(message) from error
    names = [entry.name for entry in found.entry]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        message = f"catalogue {str(path)!r}: {', '.join(doubled)} stands there twice: remove one"
        raise ConfigError(message)
    return found


def own(path: Path | None = None) -> Catalogue:
    """Return the user's own catalogue, an empty one where there is none.

    Raises:
        ConfigError: as `read`.
    """
    path = path or own_file()
    return read(path) if path.exists() else Catalogue()


def entries(path: Path | None = None) -> Mapping[str, Entry]:
    """Return all entries by name, the user's above ours, with the hashes seen where an entry has none.

    Raises:
        ConfigError: as `read`, or an entry names a label map that is not there.
    """
    theirs, maps = own(path), label_maps()
    merged = {entry.name: entry for entry in (*read(FILE).entry, *theirs.entry)}
    for entry in merged.values():
        if entry.labels not in ("embedded", "none", *maps):
            message = f"entry {entry.name!r}: there is no label map {entry.labels!r}: choose one of embedded, none, {', '.join(maps)}"
            raise ConfigError(message)
    for name, digest in theirs.seen.items():
        if name in merged and merged[name].sha256 is None:
            merged[name] = msgspec.structs.replace(merged[name], sha256=digest, sha256_of="as first fetched here")
    return merged


def find(name: str, path: Path | None = None) -> Entry:
    """Return the entry of this name.

    Raises:
        ConfigError: as `entries`, or there is none; names those that come near.
    """
    known = entries(path)
    if name in known:
        return known[name]
    near = [entry.name for entry in known.values() if name in (entry.model, entry.file)]
    near = near or difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "`edgemeter models list` names them all"
    message = f"the catalogue has no model {name!r}: {hint}"
    raise ConfigError(message)


def label_maps() -> Mapping[str, LabelMap]:
    """Return the label maps by name."""
    return msgspec.toml.decode(LABEL_MAPS.read_bytes(), type=dict[str, LabelMap])


def card_of(entry: Entry, sha256: str, source: str | None) -> card.Card:
    """Return the card for a file of this entry.

    A published accuracy is not in it: it belongs to another data set, and the card's is what a run here has to keep.
    """
    known = label_maps().get(entry.labels)
    output = msgspec.structs.replace(entry.output, labels=known.labels) if known and known.labels else entry.output
    return card.Card(
        name=entry.model,
        task=entry.task,
        family=entry.family,
        precision=entry.precision,
        sha256=sha256,
        licence=entry.licence,
        source=source or entry.source,
        input=entry.input,
        output=output,
        made={"entry": entry.name},
    )


def change(path: Path, edit: Callable[[Catalogue], Catalogue]) -> None:
    """Write the user's own catalogue as `edit` makes it of what is there; two that change it at once wait for each other.

    Raises:
        ConfigError: it cannot be read or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            text = toml_text.document(msgspec.to_builtins(edit(own(path))))
            toml_text.write(path, text)
    except OSError as error:
        message = f"cannot write the catalogue {str(path)!r}: {error.strerror}; name another file with --catalogue"
        raise ConfigError(message) from error


def with_entry(there: Catalogue, entry: Entry) -> Catalogue:
    """Return the catalogue with this entry in place of one of its name."""
    return msgspec.structs.replace(there, entry=(*(one for one in there.entry if one.name != entry.name), entry))


def with_seen(there: Catalogue, name: str, sha256: str) -> Catalogue:
    """Return the catalogue that remembers the hash of a file whose entry has none."""
    return msgspec.structs.replace(there, seen={**there.seen, name: sha256})


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
