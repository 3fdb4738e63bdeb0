"""A backup of the fleet's folder in one file, encrypted in the format age: keys, inventory, registry and the broker's configuration.

Whoever has its passphrase can also decrypt it without Edgemeter (`age --decrypt`): what comes out is a tar. Content for devices (releases,
models, suites) is left out: releases are added again from their files. The broker's own data are no part of the fleet's state.
Who was revoked, and who was enrolled, after that backup, the registry of a restored fleet cannot know.
"""

import io
import logging
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.plugins import import_extra
from edgemeter.provisioning.identity import admission
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry, copy_rows

logger = logging.getLogger(__name__)

# First in the tar; the only member that is not a file of the folder.
HEAD = "edgemeter-backup.json"
LEFT_OUT = re.compile(r"(content|broker/data)/.*|registry\.sqlite.*|broker/mosquitto\.pid|.*\.lock")
SCHEMA = 1
MAGIC = b"age-encryption.org/"
# age sets figures apart by these.
ISOLATES = dict.fromkeys(map(ord, "\u2068\u2069"))


class BackupHead(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a backup."""

    schema: int
    fleet: str
    made_ns: int


def back_up(folder: FleetFolder, fleet: str, target: Path, passphrase: str, now_ns: int) -> int:
    """Write the backup of the folder, whole or not at all; return its size in bytes. The registry may be in use meanwhile.

    Raises:
        ConfigError: a file of the folder cannot be read, or `target` cannot be written.
        UnavailableError: the library for the format is not installed.
    """
    encrypt = _library().passphrase.encrypt
    sealed: bytes = encrypt(_packed(folder, BackupHead(schema=SCHEMA, fleet=fleet, made_ns=now_ns)), passphrase)
    try:
        durable_file.write(target, sealed)
    except (OSError, UnavailableError) as error:
        raise ConfigError(f"cannot write the backup {str(target)!r} ({error}): choose another file") from error
    return len(sealed)


def check_backup(source: Path, passphrase: str) -> tuple[BackupHead, int]:
    """Return the head of a backup and how many files it holds, after all of it was read; raises as `restore_backup`."""
    with tempfile.TemporaryDirectory(prefix="edgemeter-restore-") as scratch:
        return restore_backup(source, FleetFolder(Path(scratch) / "fleet"), passphrase)


def restore_backup(source: Path, folder: FleetFolder, passphrase: str) -> tuple[BackupHead, int]:
    """Unpack a backup as the fleet's folder, whole or not at all; return its head and how many files it holds.

    Raises:
        ConfigError: the folder has a fleet already, the file is no backup or is damaged, or the passphrase is wrong.
        UnavailableError: the folder cannot be written, the library for the format is not installed, or the machine is too slow for the
            passphrase.
    """
    if folder.path.exists() and any(folder.path.iterdir()):
        raise ConfigError(f"{str(folder.path)!r} is not empty: restore into another --folder, or move that one away first")
    plain = _decrypted(source, passphrase)
    folder.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".edgemeter-restore-", dir=folder.path.parent) as scratch:
        unpacked = Path(scratch) / "fleet"
        unpacked.mkdir(mode=0o700)
        head, files = _unpacked(plain, unpacked, source)
        write_note(FleetFolder(unpacked), RestoreNote(made_ns=head.made_ns))
        if folder.path.exists():
            folder.path.rmdir()
        unpacked.replace(folder.path)
        durable_file.sync(folder.path.parent)
    return head, files


def _packed(folder: FleetFolder, head: BackupHead) -> bytes:
    buffer = io.BytesIO()
    try:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar, tempfile.TemporaryDirectory() as scratch:
            _add(tar, HEAD, msgspec.json.encode(head))
            for path in sorted(folder.path.rglob("*")):
                _add_path(tar, path.relative_to(folder.path).as_posix(), path)
            copy = Path(scratch) / folder.registry.name
            with open_registry(folder) as source, Registry(copy) as target:
                copy_rows(source, target)
            _add(tar, folder.registry.name, copy.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the fleet's folder {str(folder.path)!r} ({error}): run this as its owner") from error
    return buffer.getvalue()


def _add_path(tar: tarfile.TarFile, name: str, path: Path) -> None:
    """Add a file, folder or link of the fleet's folder, if it belongs into a backup."""
    info = tarfile.TarInfo(name)
    if path.is_symlink():
        info.type, info.linkname = tarfile.SYMTYPE, path.readlink().as_posix()
        tar.addfile(info)
    elif path.is_dir():
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif path.is_file() and not LEFT_OUT.fullmatch(name):
        _add(tar, name, path.read_bytes(), path.stat().st_mode & 0o777)


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o600) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def _decrypted(source: Path, passphrase: str, tries: int = 3) -> bytes:
    with os_error_as(ConfigError, f"cannot read the backup {str(source)!r}", "name a file that `fleet backup` has written"):
        sealed = source.read_bytes()
    if not sealed.startswith(MAGIC):
        raise ConfigError(f"{str(source)!r} is not a backup of a fleet: name a file that `edgemeter fleet backup` has written")
    library = _library()
    try:
        plain: bytes = library.passphrase.decrypt(sealed, passphrase)
    except library.DecryptError as error:
        # age tells a wrong passphrase, found in the head, from damage after it.
        if str(error) == "Decryption failed":
            raise ConfigError(f"the passphrase does not open the backup {str(source)!r}: give that of the day it was made") from error
        why = " ".join(str(error).translate(ISOLATES).split())
        if why.startswith("Excessive work"):
            # age compares with what the machine does at this moment, which may be busy with something else.
            if tries > 1:
                return _decrypted(source, passphrase, tries - 1)
            raise UnavailableError(
                f"this machine is too slow or too busy to open the backup {str(source)!r} ({why}): "
                "try again later, or on a machine as fast as the one that made it"
            ) from error
        raise ConfigError(f"the backup {str(source)!r} is damaged or cut short ({why}): copy it again, or take another one") from error
    return plain


def _unpacked(plain: bytes, root: Path, source: Path) -> tuple[BackupHead, int]:
    files = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as tar:
            first = tar.next()
            content = tar.extractfile(first) if first is not None and first.name == HEAD else None
            if content is None:
                raise ConfigError(f"{str(source)!r} is an archive of something else: name a file that `edgemeter fleet backup` has written")
            head = decode_json(content.read(), BackupHead)
            if head.schema != SCHEMA:
                raise ConfigError(f"the backup {str(source)!r} has form {head.schema}, this version knows {SCHEMA}: update edgemeter")
            while (member := tar.next()) is not None:
                _write_member(tar, member, root)
                files += 1
    except (tarfile.TarError, msgspec.MsgspecError, OSError, EOFError, ValueError) as error:
        raise ConfigError(f"cannot unpack the backup {str(source)!r} ({error}): take another backup, or make room") from error
    return head, files


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    target, is_within = root / member.name, not member.name.startswith("/") and ".." not in Path(member.name).parts
    if is_within and member.isdir():
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    if is_within and member.issym() and (target.parent / member.linkname).resolve().is_relative_to(root.resolve()):
        target.symlink_to(member.linkname)
        return
    content = tar.extractfile(member) if is_within and member.isreg() and not target.is_symlink() else None
    if content is None:
        raise ValueError(f"it holds {member.name!r}, which is no file of a fleet")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)
        file.flush()
        os.fsync(file.fileno())
    target.chmod(member.mode & 0o777)


def _library() -> Any:
    return import_extra("pyrage", "sign", "backups need the library pyrage")


class RestoreNote(msgspec.Struct, frozen=True, kw_only=True):
    """The backup is of `made_ns` (UTC); `is_broker_asked` once it is known whom a broker that was not lost had revoked since."""

    made_ns: int
    is_broker_asked: bool = False


def write_note(folder: FleetFolder, note: RestoreNote) -> None:
    """Note that the folder comes from a backup, until somebody deletes the file; raises UnavailableError if it cannot be written."""
    durable_file.write(folder.restored, msgspec.json.encode(note))


def read_note(folder: FleetFolder) -> RestoreNote | None:
    """Return the note, None where the folder was not restored, or all is settled."""
    return durable_file.read_if_any(folder.restored, RestoreNote)


def restore_question(folder: FleetFolder) -> str | None:
    """Return what people have to settle after a restore, None where there is nothing."""
    note = read_note(folder)
    if note is None:
        return None
    made_at = f"{datetime.fromtimestamp(note.made_ns / 1e9).astimezone():%Y-%m-%d %H:%M %Z}"
    return (
        f"restored from the backup of {made_at}: revoke again whoever was revoked since (`edgemeter fleet revoke NAME`, any name), "
        f"accept or revoke the boards that `edgemeter fleet list` marks as enrolled since, then delete {str(folder.restored)!r}"
    )


def revoke_again(folder: FleetFolder, registry: Registry, revoked: Callable[[], Iterable[str]]) -> None:
    """Revoke in a restored registry whom the broker holds `revoked`, once, before it is brought up to date with that registry."""
    note = read_note(folder)
    if note is None or note.is_broker_asked:
        return
    fleet = fleet_file.read(folder.fleet_file).fleet
    for device in sorted(revoked()):
        registered = devices.find(registry, device)
        if registered is not None and registered.trust == "revoked":
            continue
        try:
            decision = admission.revoke(registry, device, "revoked after the backup that the fleet comes from", fleet)
        except ConfigError as error:
            logger.warning("the broker refuses %r, which cannot be revoked here: %s", device, error)
            continue
        with registry.transaction() as statements:
            decision.do(statements)
        logger.warning("%r was revoked after the backup, as the broker knows: revoked here again", device)
    write_note(folder, msgspec.structs.replace(note, is_broker_asked=True))
