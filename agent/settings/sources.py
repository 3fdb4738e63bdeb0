"""Every setting of this machine with its value, and where that came from: option, environment, file or default."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base import config
from edgemeter.agent.base.config import Config
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.base.variables import BROKER_FILE_VARIABLES

# The variable of a setting; the others are set by the file only.
VARIABLE_OF: Mapping[str, str] = {
    "device": "EDGEMETER_DEVICE",
    "fleet": "EDGEMETER_FLEET",
    "broker": "EDGEMETER_BROKER",
    **{f"broker_{name}_file": variable for name, variable in BROKER_FILE_VARIABLES.items()},
    "power": "EDGEMETER_POWER",
    "signing_key_file": "EDGEMETER_SIGNING_KEY_FILE",
}
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `value` as TOML has it, None where nothing sets it; `source` is an option, a variable, a file, or `default`."""

    key: str
    value: Any
    source: str


def settings(path: Path | None, options: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> list[Setting]:
    """Return every setting, those of sensors as `sensors.NAME.KEY`; `options` are those that the command line gave.

    Raises:
        ConfigError: the configuration cannot be read, or has a wrong or unknown key.
    """
    file = path or config.file_in_use()
    written = Config() if file is None else read_toml(file, Config, "configuration")
    certified, file_keys = config.as_certified(written), set(msgspec.toml.decode(file.read_bytes()) if file else ())
    home_variable = next((name for name in ("EDGEMETER_HOME", "XDG_DATA_HOME") if environ.get(name)), DEFAULT)
    all_settings = [Setting("home", str(config.home()), home_variable)]
    for field in msgspec.structs.fields(Config):
        key = field.name
        if key == "sensors":
            continue
        value, source = getattr(certified, key), str(file) if key in file_keys else DEFAULT
        if value != getattr(written, key):
            source = f"identity.json beside {certified.broker_certificate_file}"
        if key == "device" and value is None:
            value, source = config.this_device(), "default: the host name"
        if environ.get(variable := VARIABLE_OF.get(key, "")):
            value, source = environ[variable], variable
        if options.get(key) is not None:
            value, source = str(options[key]), f"--{key.replace('_', '-')}"
        all_settings.append(Setting(key, list(value) if isinstance(value, tuple) else value, source))
    sensors = [(f"sensors.{name}.{key}", value) for name, table in written.sensors.items() for key, value in table.items()]
    return [*all_settings, *(Setting(key, value, str(file)) for key, value in sensors)]
