"""The sensors that a command uses: those that were named, else the one that sees the most of this machine."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from edgemeter.agent import power
from edgemeter.agent.errors import ConfigError, EdgemeterError
from edgemeter.agent.machine.board_key import board_key
from edgemeter.agent.power import PowerSensor, calibration_file, detect
from edgemeter.agent.power.calibrated import Calibrated

# `pi5_pmic+desk` is the sensor pi5_pmic, promoted to a wider scope by the model `desk`.
PROMOTED_BY = "+"


@contextmanager
def opened(
    said: str | None, usual: tuple[str, ...], settings: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[dict[str, PowerSensor], str]]:
    """Open the sensors `said` (NAME[,NAME] or none), else the `usual` ones, else the widest; also yield why there is none, or why this one.

    A sensor that was calibrated on this board is corrected; `NAME+MODEL` is one promoted to a wider scope.

    Raises:
        UnavailableError: a sensor that was asked for by name is not here.
        ConfigError: there is no such sensor, or a setting is wrong.
    """
    if said == "none":
        yield {}, "power was not to be measured (--power none)"
        return
    names, why = [name.strip() for name in said.split(",")] if said else list(usual), ""
    if not names:
        found, why = detect.choose(detect.detect(settings))
        names = [found] if found else []
    sensors: dict[str, PowerSensor] = {}
    try:
        for name in names:
            sensors[name] = opened_one(name, settings)
        yield sensors, why
    finally:
        for sensor in sensors.values():
            sensor.close()


def opened_one(name: str, settings: Mapping[str, Mapping[str, str]]) -> PowerSensor:
    """Return the sensor, corrected by its calibration where this board has one.

    Raises:
        UnavailableError: it is not here.
        ConfigError: there is no such sensor or promotion, or a setting is wrong.
    """
    plain, _, promotion = name.partition(PROMOTED_BY)
    sensor = power.create(plain, **settings.get(plain, {}))
    try:
        # A sensor that was asked for by name and is not here ends the command before anything is measured.
        found = calibration_file.find(board_key(), sensor.describe(), promotion or None)
    except EdgemeterError:
        sensor.close()
        raise
    if found is None and promotion:
        sensor.close()
        message = f"no promotion of {plain!r} is called {promotion!r} on this board: `edgemeter sensors calibrate {plain} --promotion NAME`"
        raise ConfigError(message)
    return sensor if found is None else Calibrated(sensor, found)
