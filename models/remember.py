"""What was accepted without a hash to check it by is remembered with the hash it had, and every later file is held to that."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from edgemeter.models import entries
from edgemeter.models.catalogue_entry import Entry
from edgemeter.models.fetch.into_cache import Fetched


def remember(fetched: Sequence[Fetched], known: Mapping[str, Entry], own: Path) -> None:
    """Write to the user's catalogue what ours does not say of these files.

    Raises:
        ConfigError: it cannot be read or written.
    """
    for one in fetched:
        if one.entry.name not in known:
            entry = msgspec.structs.replace(one.entry, sha256=one.sha256, sha256_of="the file in the bundle it was imported from")
            entries.change(own, lambda there, entry=entry: entries.with_entry(there, entry))  # type: ignore[misc]
        elif not one.was_verified and one.is_new:
            entries.change(own, lambda there, one=one: entries.with_seen(there, one.entry.name, one.sha256))  # type: ignore[misc]
