"""What an earlier preparation wrote for another format: it goes, so that a card has exactly one thin adapter."""

from collections.abc import Iterator

from edgemeter.provisioning.image import cloudinit, firstrun, preseed
from edgemeter.provisioning.image.boot_partition import Readable
from edgemeter.provisioning.image.changes import Change, Put
from edgemeter.provisioning.image.detect import Format

# A stick and a card of cloud-init have the same files: the one is written over the other.
ADAPTERS = (
    (frozenset({"cloudinit", "cidata"}), cloudinit.withdrawal),
    (frozenset({"preseed"}), preseed.withdrawal),
    (frozenset({"firstrun"}), firstrun.withdrawal),
)


class After:
    """A boot partition as it will be: what is there now, and over it changes that are not carried out yet."""

    def __init__(self, boot: Readable) -> None:
        self.where = boot.where
        self.changes: dict[str, Change] = {}
        self._boot = boot

    @property
    def label(self) -> str:
        """The volume's label."""
        return self._boot.label

    def names(self) -> list[str]:
        """Return what will be in the root folder, of what is there now."""
        return [name for name in self._boot.names() if name.lower() not in self.changes or self.content(name) is not None]

    def content(self, path: str) -> Iterator[bytes] | None:
        """Return the bytes that a file will have in pieces, None when there will be none."""
        change = self.changes.get(path.lower())
        if change is None:
            return self._boot.content(path)
        return change.content.chunks() if isinstance(change, Put) else None


def without_former(boot: Readable, form: Format) -> After:
    """Return the boot partition without what was written for other formats than `form`; what people wrote is all there."""
    after = After(boot)
    for forms, withdrawal in ADAPTERS:
        if form not in forms:
            after.changes |= {change.path.lower(): change for change in withdrawal(after)}
    return after
