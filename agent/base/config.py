"""The agent's configuration: options, then the environment, then a TOML file, then defaults."""

import os
import platform
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from edgemeter.agent.base import broker_url, durable_file
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.base.types import Name, Role

# Settings of sensors whose value is a file.
SENSOR_FILES = ("path", "password_file")
EVERYONE = Path("/etc/edgemeter/config.toml")
SERVICE_HOME = Path("/var/lib/edgemeter")
SAMPLE = Path(__file__).with_name("sample_config.toml")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the file; `sample_config.toml` next to this module shows every key."""

    device: Name | None = None
    fleet: Name = "default"
    role: Role = "device"
    broker: str | None = None
    outbox_limit_mb: Annotated[int, msgspec.Meta(ge=1)] = 512
    ledger_limit_mb: Annotated[int, msgspec.Meta(ge=1)] = 512
    content_url: str | None = None
    content_limit_mb: Annotated[int, msgspec.Meta(ge=1)] = 2048
    unconfined_orders: Literal["refuse", "allow"] = "refuse"
    power: tuple[str, ...] = ()
    sensors: dict[str, dict[str, Any]] = {}
    signing_key_file: str | None = None


def read(path: Path | None = None) -> Config:
    """Return the configuration in `path`, with the environment's settings before it.

    Without `path` it is the one in the first usual place that exists, or the defaults.

    Raises:
        ConfigError: it cannot be read, or has a wrong or unknown key (named with its path).
    """
    config_file = path or file_in_use()
    config = Config() if config_file is None else as_certified(read_file(config_file))
    key = os.environ.get("EDGEMETER_SIGNING_KEY_FILE")
    return msgspec.structs.replace(config, signing_key_file=key) if key else config


def read_file(path: Path) -> Config:
    """Return the configuration at `path`, with file names relative to its folder.

    Raises as `read`.
    """
    written = read_toml(path, Config, "configuration")
    folder = path.expanduser().absolute().parent

    def absolute(name: str) -> str:
        # A path that cannot be expanded is no error.
        return str(folder / os.path.expanduser(name))  # noqa: PTH111

    broker, key = written.broker, written.signing_key_file
    if broker:
        broker = broker_url.with_files(
            broker,
            {name: absolute(str(path)) for name, path in broker_url.files_of(broker).items()},
        )
    sensors = {
        sensor: {
            key: absolute(value) if key in SENSOR_FILES and isinstance(value, str) else value
            for key, value in table.items()
        }
        for sensor, table in written.sensors.items()
    }
    return msgspec.structs.replace(
        written, broker=broker, signing_key_file=absolute(key) if key else None, sensors=sensors
    )


def places() -> list[Path]:
    """Return the usual places in order, of which the first file that exists is read.

    They are in $XDG_CONFIG_HOME (default ~/.config), then in /etc.
    """
    folder = _user_folder("XDG_CONFIG_HOME", "~/.config")
    return [EVERYONE] if folder is None else [folder / "config.toml", EVERYONE]


def file_in_use() -> Path | None:
    """Return the first of the usual places that exists, else None."""
    # os.path: a home that this user may not read (sudo -u) counts as one without the file.
    return next((path for path in places() if os.path.exists(path)), None)  # noqa: PTH110


def as_certified(config: Config) -> Config:
    """Return the configuration with the names in the device's certificate, if there is one.

    A fleet's broker identifies a device by its certificate. A file next to it holds the
    certificate's owner, which a copied card may have changed.
    """
    certificate = broker_url.files_of(config.broker).get("certificate") if config.broker else None
    named = certificate and durable_file.read_if_any(
        certificate.with_name("identity.json"), _CertifiedNames
    )
    if not named:
        return config
    return msgspec.structs.replace(config, device=named.device, fleet=named.fleet)


class _CertifiedNames(msgspec.Struct, frozen=True, kw_only=True):
    device: Name
    fleet: Name


def home() -> Path:
    """Return the folder of outbox and ledger.

    It is $EDGEMETER_HOME, else below $XDG_DATA_HOME or ~/.local/share. A user without a home
    folder, as in a container, uses that of the agent's service.
    """
    if folder := os.environ.get("EDGEMETER_HOME"):
        # A path that cannot be expanded is no error.
        return Path(os.path.expanduser(folder))  # noqa: PTH111
    return _user_folder("XDG_DATA_HOME", "~/.local/share") or SERVICE_HOME


def _user_folder(variable: str, default: str) -> Path | None:
    """Return our folder below the one in an environment variable, or below the default.

    None if the user has no home folder.
    """
    above = os.path.expanduser(os.environ.get(variable) or default)  # noqa: PTH111 - as above
    return None if above.startswith("~") else Path(above) / "edgemeter"


def names(device: str | None, fleet: str | None, settings: Config) -> tuple[str, str]:
    """Return the names of device and fleet.

    Each is as given, else from the environment, else as configured, else this machine's host name.

    Raises:
        ConfigError: one is not a valid name for MQTT topics and collectors.
    """
    device_and_fleet = (
        device or os.environ.get("EDGEMETER_DEVICE") or settings.device or this_device(),
        fleet or os.environ.get("EDGEMETER_FLEET") or settings.fleet,
    )
    for kind, name in zip(("device", "fleet"), device_and_fleet, strict=True):
        try:
            msgspec.convert(name, Name)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"{name!r} is not a valid {kind} name: use up to 128 of A-Z, a-z, 0-9, space and "
                "._:@-, starting with a letter or digit"
            ) from error
    return device_and_fleet


def this_device() -> str:
    """Return this machine's host name as a device name.

    Characters that are not allowed become dashes.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", platform.node()).strip("-._") or "device"
