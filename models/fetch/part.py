"""The part of a file that has arrived: `.FILE.part`, and beside it from where and of what, so that the rest can follow later."""

import errno
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent.errors import TransientError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a part came from. `validator` is a strong ETag or a Last-Modified date; None where the server gave neither."""

    address: str
    validator: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """The unfinished download of `target`."""

    target: Path

    @property
    def path(self) -> Path:
        """Where the bytes lie."""
        return self.target.with_name(f".{self.target.name}.part")

    @property
    def note(self) -> Path:
        """Where it says what they are."""
        return self.target.with_name(f".{self.target.name}.part.json")

    @property
    def size_bytes(self) -> int:
        """How much has arrived."""
        return self.path.stat().st_size if self.path.exists() else 0

    def origin(self) -> Origin | None:
        """Return where the bytes came from; None where there are none, or nobody can tell any more."""
        try:
            return msgspec.json.decode(self.note.read_bytes(), type=Origin) if self.size_bytes else None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def begin(self, origin: Origin) -> None:
        """Forget what has arrived, and note what will."""
        self.drop()
        try:
            self.note.write_bytes(msgspec.json.encode(origin))
            self.path.touch()
        except OSError as error:
            raise self.unwritable(error) from error

    def drop(self) -> None:
        """Forget what has arrived."""
        # The note last: bytes without a note are started over, a note without bytes is nothing.
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def unwritable(self, error: OSError) -> TransientError:
        """Return our error for a file system that takes no more."""
        where = str(self.target.parent)
        if error.errno in _FULL:
            return TransientError(
                f"no space left in {where!r} after {self.size_bytes} bytes of {self.target.name}: make room (`edgemeter models cache`, or "
                "another folder with --cache) and fetch again; what has arrived is kept"
            )
        return TransientError(f"cannot write to {where!r}: {error.strerror}; name another folder with --cache")
