"""Where the observer effect is kept: one JSON file in the agent's folder, one entry for each board with its set of sensors."""

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from edgemeter.agent.config import home
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import Environment, ObserverEffect

logger = logging.getLogger(__name__)
FILE = "observer.json"


def setting(environment: Environment, sensors: Iterable[str]) -> str:
    """Return the key of a setting: the board (or the processor, where it has no name), its cores, and what is sampled."""
    board = environment.board or environment.cpu or environment.arch
    return " | ".join([board, f"{environment.cores} cores", "+".join(sorted(sensors)) or "conditions only"])


def find(environment: Environment, sensors: Iterable[str], folder: Path | None = None) -> ObserverEffect | None:
    """Return what was calibrated for this setting, None where nothing was; a damaged file is logged and counts as none."""
    try:
        return _read(_place(folder)).get(setting(environment, sensors))
    except ConfigError as error:
        logger.warning("%s", error)
        return None


def keep(effect: ObserverEffect, environment: Environment, folder: Path | None = None) -> Path:
    """Keep the effect for the setting that it was measured in, instead of an earlier one, and return the file.

    Raises:
        ConfigError: the file is damaged, or cannot be written.
    """
    place = _place(folder)
    kept = _read(place) | {setting(environment, effect.sensors): effect}
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_suffix(".new")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
        beside.replace(place)
    except OSError as error:
        message = f"cannot write {str(place)!r}: {error.strerror}: set EDGEMETER_HOME to a folder that can be written"
        raise ConfigError(message) from error
    return place


def _place(folder: Path | None) -> Path:
    return (folder or home()) / FILE


def _read(place: Path) -> dict[str, ObserverEffect]:
    try:
        return msgspec.json.decode(place.read_bytes(), type=dict[str, ObserverEffect])
    except FileNotFoundError:
        return {}
    except OSError as error:
        message = f"cannot read {str(place)!r}: {error.strerror}"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"{str(place)!r} is damaged ({error}): delete it and calibrate again"
        raise ConfigError(message) from error
