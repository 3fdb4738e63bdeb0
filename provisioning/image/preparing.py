"""Prepare a boot partition: the payload, the same for every system, and exactly one adapter for the format that the card has."""

import gzip
import hashlib
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, cast

from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.provisioning.fat.geometry import make_stick
from edgemeter.provisioning.fat.volume import Change, FileContent, PutFile, RemovePath, of_bytes
from edgemeter.provisioning.image import cloudinit, detect, firstrun, preseed
from edgemeter.provisioning.image.adapter_text import FROM_BOOT, FROM_STICK, PAYLOAD_FOLDER
from edgemeter.provisioning.image.boot_partition import BootPartition, Readable
from edgemeter.provisioning.image.detect import STICK, ChosenFormat, without_previous
from edgemeter.provisioning.image.settings import FirstBootSettings
from edgemeter.provisioning.release import manifest
from edgemeter.provisioning.release.install import MANIFEST, MOST_SIGNATURE_BYTES, SIGNATURE, Manifest

NEEDED = ("install.py", "supervisor.py")
HERE = Path(__file__).parent
UNIT = "edgemeter-firstboot.service"
PUBLIC_KEY, JOIN, STATUS = "release.pub", "join.toml", "status.txt"
NOT_YET = """Edgemeter, first boot
state:   prepared
step:    none yet: the board has not started from this card, or its system did not call our script
"""
# Room beside the payload: tables, rounding up to clusters, the status file.
SPARE_BYTES = 8 << 20
MIB = 1 << 20
CHUNK_BYTES = 4 << 20
GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\0"


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """A release; `files` by their path in it, with manifest and signature."""

    manifest: Manifest
    files: dict[str, FileContent]


@contextmanager
def open_release(path: Path, public_key: Path) -> Iterator[ReleaseFiles]:
    """Open the release in a folder or tar, verified; raises ConfigError as `read_release`, or if it lacks a file that a board needs."""
    verified = manifest.read_release(path, public_key)
    with manifest.open_unverified(path) as source:
        files = {MANIFEST: of_bytes(verified.document), SIGNATURE: of_bytes(source.small(SIGNATURE, MOST_SIGNATURE_BYTES))}
        files |= {entry.path: FileContent(entry.size_bytes, partial(source.open, entry.path)) for entry in verified.manifest.files}
        lacking = [name for name in NEEDED if name not in files]
        if lacking:
            raise ConfigError(f"the release {str(path)!r} has no {' and no '.join(lacking)}, which a board needs: make it again")
        yield ReleaseFiles(verified.manifest, files)


@dataclass(frozen=True, slots=True)
class CardRequest:
    """The requested contents of the card; `join` and `public_key` are the bytes of their files."""

    release: ReleaseFiles
    join: bytes
    public_key: bytes
    settings: FirstBootSettings
    form: detect.BootFormat | None = None


@dataclass(frozen=True, slots=True)
class CardPlan:
    """The changes in their order: stale files are removed, then the payload is written, then the adapter that starts it.

    `previous` are the paths where the adapter of an earlier preparation for another format is removed, together with the new adapter.
    """

    where: str
    chosen: ChosenFormat
    also_firing: list[str]
    misfits: list[str]
    previous: list[str]
    steps: tuple[list[Change], ...]
    unchanged: int

    def changes(self) -> Iterator[Change]:
        """Yield every change in order."""
        for step in self.steps:
            yield from step

    @property
    def size_bytes(self) -> int:
        """How many bytes are written."""
        return sum(change.content.size_bytes for change in self.changes() if isinstance(change, PutFile))


def plan_card(boot: BootPartition, request: CardRequest) -> CardPlan:
    """Return the changes of `boot`, without files that are right; raises ConfigError for its format, UnavailableError without room."""
    chosen_format = detect.choose_format(boot, request.form)
    payload = list(_payload(request))
    after = without_previous(boot, chosen_format.form)
    adapter = _adapter(after, chosen_format, request)
    planned_paths = {change.path.lower() for change in [*payload, *adapter]}
    stale: list[Change] = [RemovePath(path) for path in boot.files(PAYLOAD_FOLDER) if path.lower() not in planned_paths]
    # Last, with the new adapter in place: until then the card boots by the previous one.
    leaving = [change for path, change in after.changes.items() if path not in planned_paths]
    steps = (stale, _differing(boot, payload), [*_differing(boot, adapter), *leaving])
    unchanged = len(payload) + len(adapter) + len(leaving) - len(steps[1]) - len(steps[2])
    removed = [change.path for change in after.changes.values()]
    misfits = detect.misfits(boot, request.release.manifest.arch, request.release.manifest.python)
    plan = CardPlan(boot.where, chosen_format, detect.also_firing(after, chosen_format.form), misfits, removed, steps, unchanged)
    freed = sum(size for path, size in boot.files(PAYLOAD_FOLDER).items() if path.lower() not in planned_paths)
    missing = boot.missing_bytes([*steps[1], *steps[2]]) - freed
    if missing > 0:
        shortage = f"{missing / 1e6:,.1f} MB more are needed"
        raise UnavailableError(f"the boot partition of {boot.where} is too full: {shortage}; take a smaller release, or delete files there")
    return plan


def carry_out(boot: BootPartition, plan: CardPlan, wrote: Callable[[int], None]) -> None:
    """Carry out the plan; after a power cut at any moment the card boots as before, and a repeated call completes it."""
    # What an interrupted preparation left unused or different is put right, even if nothing is to be written.
    boot.apply([], wrote)
    for step in plan.steps:
        if step:
            boot.apply(step, wrote)


def verify_card(boot: BootPartition, plan: CardPlan, read: Callable[[int], None]) -> None:
    """Compare every byte with what is read back, as some cards lose acknowledged writes; raises UnavailableError if one differs."""
    for change in plan.changes():
        content = boot.content(change.path)
        is_right = content is None if isinstance(change, RemovePath) else content is not None and _is_same(content, change.content, read)
        if not is_right:
            raise UnavailableError(
                f"{change.path!r} on {boot.where} reads back differently: the card or its reader is faulty, use another one"
            )


def _payload(request: CardRequest) -> Iterator[PutFile]:
    for path, content in request.release.files.items():
        yield PutFile(f"{PAYLOAD_FOLDER}/{path}", content)
    own_files = {name: (HERE / name).read_bytes() for name in ("firstboot.sh", UNIT)}
    own_files |= {PUBLIC_KEY: request.public_key, JOIN: request.join, STATUS: NOT_YET.encode()}
    for name, data in own_files.items():
        yield PutFile(f"{PAYLOAD_FOLDER}/{name}", of_bytes(data))


def _adapter(boot: Readable, chosen_format: ChosenFormat, request: CardRequest) -> list[Change]:
    if chosen_format.form == "preseed":
        return preseed.changes(boot, request.settings)
    if chosen_format.form == "firstrun":
        return firstrun.changes(boot, request.settings)
    start = FROM_STICK if chosen_format.form == "cidata" else FROM_BOOT
    return cloudinit.changes(boot, request.settings, _instance(request), start)


def _instance(request: CardRequest) -> str:
    """Return a name for this preparation: with another token, release or setting it is another instance."""
    digest = hashlib.sha256(request.join + repr((request.settings, request.settings.wifi and request.settings.wifi.psk_hex)).encode())
    for chunk in request.release.files["manifest.json"].chunks():
        digest.update(chunk)
    return f"edgemeter-{digest.hexdigest()[:16]}"


def _differing(boot: BootPartition, changes: Iterable[Change]) -> list[Change]:
    """Return the changes whose files the boot partition does not have yet, and all removals."""
    present = ((change, boot.content(change.path)) for change in changes)
    return [
        change
        for change, content in present
        if isinstance(change, RemovePath) or content is None or not _is_same(content, change.content, lambda _: None)
    ]


def _is_same(pieces: Iterable[bytes], content: FileContent, read: Callable[[int], None]) -> bool:
    """Return whether both have the same bytes, whatever the sizes of their pieces."""
    with content.open() as expected:
        for chunk in pieces:
            read(len(chunk))
            if expected.read(len(chunk)) != chunk:
                return False
        return not expected.read(1)


def is_compressed(path: Path) -> bool:
    """Return whether a file is an image in `.gz` or `.xz`, by its first bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(XZ)).startswith((GZIP, XZ))


@contextmanager
def unpacked_copy(source: Path, path: Path, report: Callable[[int, int], None], *, is_dry: bool) -> Iterator[Path]:
    """Yield a copy of an image (raw, `.gz`, `.xz`) to prepare; it is renamed to `path` afterwards, and removed on an error or if `is_dry`.

    `report` gets the bytes read, and all of them.

    Raises:
        ConfigError: the file exists already, or the image is damaged.
        UnavailableError: there is not enough room.
    """
    if path.exists():
        raise ConfigError(f"{str(path)!r} exists already: prepare that one, or delete it")
    task = f"cannot unpack {str(source)!r} to {str(path)!r}"
    with _renamed_to(path, is_dry=is_dry) as unfinished:
        with os_error_as(UnavailableError, task, "make room there"), source.open("rb") as raw, unfinished.open("wb") as copy:
            magic = raw.read(len(XZ))
            raw.seek(0)
            unpack = gzip.open if magic.startswith(GZIP) else lzma.open if magic == XZ else None
            image = cast("IO[bytes]", unpack(raw)) if unpack else raw
            try:
                while chunk := image.read(CHUNK_BYTES):
                    # Zeros take no room, as in most images.
                    _ = copy.write(chunk) if chunk.strip(b"\0") else copy.seek(len(chunk), os.SEEK_CUR)
                    report(raw.tell(), source.stat().st_size)
            except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
                raise ConfigError(f"the image {str(source)!r} is damaged ({error}): download it again") from error
            copy.truncate(copy.tell())
        yield unfinished


@contextmanager
def new_stick(path: Path, request: CardRequest, size_bytes: int | None, *, is_dry: bool) -> Iterator[Path]:
    """Yield an empty stick, renamed to `path` afterwards, not after an error or if `is_dry`; raises ConfigError as `make_stick`."""
    if path.exists():
        raise ConfigError(
            f"{str(path)!r} exists already: choose another file for the stick, delete it, or prepare it (without --make-stick)"
        )
    payload_bytes = sum(content.size_bytes for content in request.release.files.values())
    size_bytes = size_bytes if size_bytes is not None else -(-(payload_bytes * 5 // 4 + SPARE_BYTES) // MIB) * MIB
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {str(path.parent)!r} for the stick: make it, or choose another (--make-stick)")
    with _renamed_to(path, is_dry=is_dry) as unfinished:
        make_stick(unfinished, size_bytes, STICK)
        yield unfinished


@contextmanager
def _renamed_to(path: Path, *, is_dry: bool) -> Iterator[Path]:
    """Yield a path of that name beside it, renamed to it unless the block fails or `is_dry`."""
    with tempfile.TemporaryDirectory(prefix=".edgemeter-image-", dir=path.parent) as folder:
        unfinished = Path(folder) / path.name
        yield unfinished
        if not is_dry:
            unfinished.replace(path)
