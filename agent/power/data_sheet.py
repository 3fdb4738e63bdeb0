"""The data sheet of a sensor: what its module and its class say of it, with the example of its table in the configuration."""

import inspect
import re
from collections.abc import Mapping

from edgemeter.agent import power


def data_sheet(name: str) -> str:
    """Return the sensor's own words: those of its class, then those of its module, without indentation."""
    kind = power.sensor_class(name)
    return "\n\n".join(inspect.cleandoc(text) for text in (kind.__doc__, getattr(inspect.getmodule(kind), "__doc__", None)) if text)


def example(name: str) -> str:
    """Return the example of its table, `[sensors.NAME]` and the lines below it, as TOML; empty for a sensor without settings."""
    found = re.search(rf"^ +\[sensors\.{re.escape(name)}\]\n(?: +\S.*\n?)*", data_sheet(name), re.MULTILINE)
    return "" if found is None else inspect.cleandoc(found[0]) + "\n"


def defaults(name: str) -> Mapping[str, str]:
    """Return the keys of its table with their defaults; an empty text stands for none."""
    parameters = inspect.signature(power.sensor_class(name)).parameters
    keys = [key for key in power.settings_of(name) if key != "type"]
    return {key: "" if parameters[key].default in (None, inspect.Parameter.empty) else str(parameters[key].default) for key in keys}
