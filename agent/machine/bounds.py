"""The bounds of this machine, measured by `edgemeter doctor`: a file in its home; they hold for one kernel, processor and power mode."""

import logging
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.config import home
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record_conditions import Environment, MachineBounds

logger = logging.getLogger(__name__)
BOUNDS_FILE = "bounds.json"
# In the reason of a bound that came out otherwise the second time.
DISTURBED = "other work disturbed it"


class KeptBounds(msgspec.Struct, frozen=True):
    """The content of the file: the bounds, and what they hold for."""

    setting: dict[str, str | int | float | None]
    bounds: MachineBounds


def setting_of(environment: Environment) -> dict[str, str | int | float | None]:
    """Return what the bounds depend on; where one of these changes they are measured again."""
    return {name: getattr(environment, name) for name in ("board", "cpu", "cores", "cache_mb", "kernel", "governor", "power_mode")}


def find_bounds(environment: Environment, folder: Path | None = None) -> MachineBounds | None:
    """Return the bounds that were measured on this machine as it is now, if any; a damaged file is logged and counts as none."""
    try:
        stored = durable_file.read_struct((folder or home()) / BOUNDS_FILE, KeptBounds, "bounds of this machine", "delete it")
    except ConfigError as error:
        logger.warning("%s", error)
        return None
    return stored.bounds if stored is not None and stored.setting == setting_of(environment) else None


def keep_bounds(bounds: MachineBounds, environment: Environment, folder: Path | None = None) -> Path:
    """Store the bounds for this machine as it is now, and return the file; raises ConfigError if it cannot be written."""
    return durable_file.write_struct((folder or home()) / BOUNDS_FILE, KeptBounds(setting_of(environment), bounds))
