"""The calibration of one sensor on one board: a JSON file that others can read, and correct figures by."""

import hashlib
import math
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.config import home
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.power import Description
from edgemeter.agent.records import Name, Scope

FOLDER = "calibrations"


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """true power = offset_w + gain x shown power, for one sensor on one board; uncertainties are standard ones (k = 1).

    `gain_u_ratio` and `offset_u_w` hold the fit's and the reference instrument's together; None of the gain where nobody knows the
    reference's. A `gain` corrects what the sensor sees; a `promotion` is a model of what a wider scope draws when the sensor sees so
    much: it has a name, and is used only when that is said.
    """

    kind: Literal["gain", "promotion"]
    name: Name | None = None
    board: str
    sensor: str
    scope: Scope
    gain: float
    offset_w: float
    gain_u_ratio: float | None
    offset_u_w: float
    residual_w: float
    lowest_w: float
    highest_w: float
    steps: int
    reference: str
    excludes: tuple[str, ...] = ()
    made_at: str


def place(board: str, sensor: str, name: str | None = None, folder: Path | None = None) -> Path:
    """Return where the calibration of this sensor on this board lies, or the promotion of that name."""
    key = hashlib.sha256(f"{board} {sensor} {name or ''}".encode()).hexdigest()[:12]
    return (folder or home()) / FOLDER / f"{name or 'gain'}-{key}.json"


def keep(calibration: Calibration, folder: Path | None = None) -> Path:
    """Write the calibration in place of an earlier one and return its file.

    Raises:
        ConfigError: it cannot be written.
    """
    path = place(calibration.board, calibration.sensor, calibration.name, folder)
    beside = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(calibration), indent=2) + b"\n")
        beside.replace(path)
    except OSError as error:
        message = f"cannot write {str(path)!r}: {error.strerror}: set EDGEMETER_HOME to a folder that can be written"
        raise ConfigError(message) from error
    return path


def find(board: str | None, description: Description, name: str | None = None, folder: Path | None = None) -> Calibration | None:
    """Return the calibration of this sensor on this board (or the promotion of that name), None where there is none.

    Raises:
        ConfigError: the file is damaged, or is not of this board and sensor.
    """
    if board is None:
        return None
    path = place(board, description.id, name, folder)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"cannot read the calibration {str(path)!r}: {error.strerror}: correct its rights, or delete it and calibrate again"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"calibration {str(path)!r} is damaged ({error}): delete it and calibrate again"
        raise ConfigError(message) from error
    if (found.board, found.sensor, found.name) != (board, description.id, name):
        message = f"calibration {str(path)!r} is of sensor {found.sensor!r} on board {found.board!r}: it does not hold here, delete it"
        raise ConfigError(message)
    if not all(map(math.isfinite, (found.gain, found.offset_w, found.offset_u_w))):
        message = f"calibration {str(path)!r} holds a number that is none: delete it and calibrate again"
        raise ConfigError(message)
    return found
