"""A fleet restored from a backup: who was revoked, and who was enrolled, after that backup, its registry cannot know."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.identity import admission
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry

logger = logging.getLogger(__name__)


class RestoreNote(msgspec.Struct, frozen=True, kw_only=True):
    """The backup is of `made_ns` (UTC); `is_broker_asked` once it is known whom a broker that was not lost had revoked since."""

    made_ns: int
    is_broker_asked: bool = False


def write_note(folder: FleetFolder, note: RestoreNote) -> None:
    """Note that the folder comes from a backup, until somebody deletes the file; raises UnavailableError if it cannot be written."""
    durable_file.write(folder.restored, msgspec.json.encode(note))


def read_note(folder: FleetFolder) -> RestoreNote | None:
    """Return the note, None where the folder was not restored, or all is settled."""
    try:
        return msgspec.json.decode(folder.restored.read_bytes(), type=RestoreNote)
    except (OSError, msgspec.MsgspecError):
        return None


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
    """Revoke in a restored registry whom the broker holds `revoked`, once, before the broker is brought up to date with that registry.

    Raises:
        ConfigError: fleet.toml is wrong.
        UnavailableError: the folder cannot be written.
    """
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
