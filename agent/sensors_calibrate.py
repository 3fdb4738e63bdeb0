"""What `edgemeter sensors calibrate` does: options to a plan, load steps to a line, the line to its file."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from edgemeter.agent import power
from edgemeter.agent.calibration import procedure
from edgemeter.agent.calibration.load_steps import load
from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.machine.board_key import board_key
from edgemeter.agent.power import Description, PowerSensor, calibration_file
from edgemeter.agent.power.calibration_file import Calibration

Ask = Callable[[float], tuple[float, float]]


def calibrate(
    names: tuple[str, str | None],
    settings: Mapping[str, Mapping[str, str]],
    plan: procedure.Plan,
    told: procedure.Reference,
    promotion: str | None,
    tell: procedure.Tell,
    ask: Ask,
) -> tuple[Calibration, list[procedure.Held], Path]:
    """Hold the load steps and return the calibration, the steps behind it, and the file that keeps it.

    `names` are the sensor's and the reference sensor's, None where readings are typed in (`ask`); `told` says what the user knows of the
    reference.

    Raises:
        EdgemeterError: a sensor is not here, the steps say nothing, or the file cannot be written.
    """
    board = board_key()
    if board is None:
        message = "this board has no serial number and no /etc/machine-id to keep a calibration by: `sudo systemd-machine-id-setup`"
        raise UnavailableError(message)
    name, other = names
    if name == other:
        message = f"{name!r} cannot be its own reference: name another sensor, or type readings in (--typed)"
        raise ConfigError(message)
    with ExitStack() as stack:
        sensors = {one: _opened(one, settings, stack) for one in (name, other) if one is not None}
        description = sensors[name].describe()
        reference = told if other is None else _of_sensor(other, sensors[other].describe(), told)
        # Before minutes of load are spent on it.
        procedure.calibrated_scope(description, reference, promotion)
        held = (
            procedure.typed(name, sensors[name], plan, load, tell, ask)
            if other is None
            else procedure.against(sensors, name, other, plan, load, tell)
        )
    found = procedure.calibration(board, description, reference, held, promotion)
    return found, held, calibration_file.keep(found)


def _opened(name: str, settings: Mapping[str, Mapping[str, str]], stack: ExitStack) -> PowerSensor:
    sensor = power.create(name, **settings.get(name, {}))
    stack.callback(sensor.close)
    sensor.describe()
    return sensor


def _of_sensor(name: str, found: Description, told: procedure.Reference) -> procedure.Reference:
    """Return the reference sensor as an instrument; what the user said of its gain goes before what it says itself."""
    gain_u = told.gain_u_ratio if told.gain_u_ratio is not None else found.gain_u_ratio
    offset_u_w = told.offset_u_w or found.offset_u_w or (found.resolution_w or 0.0) / 3**0.5
    return procedure.Reference(f"{name} ({found.id})", found.scope, found.excludes, gain_u, offset_u_w)
