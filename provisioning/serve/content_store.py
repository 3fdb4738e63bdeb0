"""The content store: files named by their sha256, written atomically.

Files are removed when nothing refers to them.
"""

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_HOUR
from edgemeter.agent.contract.orders import FILE_NAME, Content, Work, contents_of
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetHandler, FleetPublish

logger = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
COLLECT_NS = NS_PER_HOUR

# Content without a reference may have just been stored by a command that is about to refer to it.
YOUNG_NS = NS_PER_DAY
_UNFINISHED = ".unfinished-"
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Also repeated jobs: a device downloads their content whenever it needs it again, however long ago
# the order was.
_WORKS = (
    "SELECT works FROM jobs WHERE EXISTS (SELECT 1 FROM executions WHERE executions.job = "
    "jobs.job AND ended_ns IS NULL)"
)


class ContentStore:
    """The contents in `folder`, which is created for the first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, source: Path, name: str | None = None) -> Content:
        """Store a copy of `source`, replacing an existing one.

        Raises:
            ConfigError: the source or its name is wrong.
            UnavailableError: the store cannot be written.
        """
        return self.put_written(lambda file: file.writelines(pieces(source)), name or source.name)

    def put_bytes(self, content: bytes, name: str) -> Content:
        """Store `content`, and return its description for orders; raises as `put`."""
        return self.put_written(lambda file: file.write(content), name)

    def put_written(self, write: Callable[[BinaryIO], object], name: str) -> Content:
        """Store what `write` writes to the given file, and return its description for orders.

        It raises as `put`.
        """
        if re.fullmatch(FILE_NAME, name) is None:
            raise ConfigError(
                f"{name!r} cannot be the name of content for devices: use letters, digits, dots, "
                "dashes and underscores, at most 128"
            )
        with os_error_as(
            UnavailableError, f"cannot store {name!r} in the fleet's content, {str(self._folder)!r}"
        ):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, path = tempfile.mkstemp(prefix=_UNFINISHED, dir=self._folder)
            unfinished = Path(path)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
                content = Content(
                    sha256=durable_file.sha256_of(unfinished),
                    size_bytes=unfinished.stat().st_size,
                    name=name,
                )
                unfinished.replace(self._folder / content.sha256)
                durable_file.sync(self._folder)
            finally:
                unfinished.unlink(missing_ok=True)
        return content

    def path(self, sha256: str) -> Path | None:
        """Return the path of a content, None if there is none or it is not a sha256."""
        path = self._folder / sha256
        return path if _SHA256.fullmatch(sha256) and path.is_file() else None

    def collect(self, named: Collection[str], now_ns: int) -> list[str]:
        """Remove contents that are not in `named`, and unfinished ones; return the removed names.

        Young ones are kept.
        """
        removed = []
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else []:
            is_content = _SHA256.fullmatch(path.name) or path.name.startswith(_UNFINISHED)
            # Another process may be first, or this one has no permission: the next call tries
            # again.
            with contextlib.suppress(OSError):
                if (
                    is_content
                    and path.name not in named
                    and path.stat().st_mtime_ns <= now_ns - YOUNG_NS
                ):
                    path.unlink()
                    removed.append(path.name)
        return removed


class ContentCollector(FleetHandler):
    """Removes content that no open job and no release refers to."""

    topics = ()

    def __init__(self, folder: FleetFolder, registry: Registry, _publish: FleetPublish) -> None:
        self._store = ContentStore(folder.content)
        self._registry = registry
        self._collected_ns: int | None = None

    def poll(self, now_ns: int) -> None:
        if self._collected_ns is not None and now_ns - self._collected_ns < COLLECT_NS:
            return
        self._collected_ns = now_ns
        referenced = {row["sha256"] for row in self._registry.query("SELECT sha256 FROM releases")}
        for row in self._registry.query(_WORKS):
            for work in msgspec.json.decode(row["works"], type=tuple[Work, ...]):
                referenced.update(content.sha256 for content in contents_of(work))
        if removed := self._store.collect(referenced, now_ns):
            logger.info("removed %d contents that no open job or release refers to", len(removed))


def pieces(source: Path) -> Iterator[bytes]:
    """Yield the bytes of a file; raises ConfigError if it cannot be read."""
    with os_error_as(ConfigError, f"cannot read {str(source)!r}"), source.open("rb") as file:
        while data := file.read(PIECE_BYTES):
            yield data
