"""The sensors that a command uses: those that were named, else the one that sees the most of this machine."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from edgemeter.agent import power
from edgemeter.agent.power import PowerSensor, detect


@contextmanager
def opened(
    said: str | None, usual: tuple[str, ...], settings: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[dict[str, PowerSensor], str]]:
    """Open the sensors `said` (NAME[,NAME] or none), else the `usual` ones, else the widest; also yield why there is none, or why this one.

    Raises:
        UnavailableError: a sensor that was asked for by name is not here.
        ConfigError: there is no such sensor, or a setting is wrong.
    """
    if said == "none":
        yield {}, "power was not to be measured (--power none)"
        return
    names, why = said.split(",") if said else list(usual), ""
    if not names:
        found, why = detect.choose(detect.detect(settings))
        names = [found] if found else []
    sensors = {name: power.create(name, **settings.get(name, {})) for name in names}
    try:
        for sensor in sensors.values():
            # A sensor that was asked for by name and is not here ends the command before anything is measured.
            sensor.describe()
        yield sensors, why
    finally:
        for sensor in sensors.values():
            sensor.close()
