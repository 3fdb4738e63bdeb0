"""`fleet.toml`: the devices, circuits and rules of a fleet as people write them; `sample_fleet.toml` beside this file shows every key."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import Name

# A label that a selection can name: `board=pi5 & coral`.
Tag = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]
Watts = Annotated[float, msgspec.Meta(gt=0)]


class DeviceEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device: what it is, how to reach it over SSH (`host`, `user`, `port`), and what gives it power."""

    board: Tag | None = None
    serial: str | None = None
    tags: tuple[Tag, ...] = ()
    host: str | None = None
    user: str | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 22
    power_mode: str | None = None
    governor: str | None = None
    circuit: Name | None = None
    power_w: Watts | None = None
    switch: str | None = None


class Circuit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What hangs on one fuse or power supply: at most `limit_w` are spent on measurements at a time."""

    limit_w: Watts


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where devices find the fleet: the broker, the port for those that have no certificate yet, and content over HTTP, if any.

    `accept` is whether a token is enough to join, or somebody has to say yes; `broker_reload` a command that makes the broker read its
    files again, where a SIGHUP to the process in `broker_pid_file` does not.
    """

    broker: str
    broker_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8883
    enrol_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8884
    content_url: str | None = None
    names: tuple[str, ...] = ()
    accept: Literal["token", "hand"] = "token"
    broker_pid_file: str | None = None
    broker_reload: tuple[str, ...] = ()


class HealthRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often each device measures the model that ships with the agent, to be held against its own past; 0: never by itself."""

    golden_hours: Annotated[float, msgspec.Meta(ge=0, le=8760)] = 24.0


class Rescue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a board that was lost is power-cycled by itself: not before `lost_minutes`; without them never.

    `longest_run_minutes` is how long a run can take of which the server does not know: for so long after a device was last heard to
    measure its power is not cut. `off_s` is how long the power is off, `at_most` how often it is tried.
    """

    lost_minutes: Annotated[float, msgspec.Meta(gt=0)] | None = None
    longest_run_minutes: Annotated[float, msgspec.Meta(ge=0)] = 120.0
    off_s: Annotated[float, msgspec.Meta(ge=1, le=600)] = 10.0
    at_most: Annotated[int, msgspec.Meta(ge=1, le=3)] = 3


class SwitchEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A power switch by its name: commands of the server (lists of words, no shell), or an address with a password.

    `state` prints `on` or `off`. In a command the word `{device}` stands for the device's name.
    """

    on: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    address: str | None = None
    user: str = "admin"
    password_file: str | None = None


class FleetFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; `quiet` are hours of local time, `HH:MM-HH:MM`, in which nothing is started."""

    fleet: Name
    server: Server | None = None
    device: dict[Name, DeviceEntry] = {}
    circuit: dict[Name, Circuit] = {}
    quiet: tuple[Annotated[str, msgspec.Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d\Z")], ...] = ()
    health: HealthRules = HealthRules()
    rescue: Rescue = Rescue()
    switch: dict[Name, SwitchEntry] = {}


def read(path: Path) -> FleetFile:
    """Return what stands in `path`.

    Raises:
        ConfigError: it cannot be read, has a wrong or unknown key, a device names a circuit that is not there, or two have one serial.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        message = f"cannot read the fleet file {str(path)!r}: {error.strerror}; `edgemeter fleet init` writes one"
        raise ConfigError(message) from error
    try:
        found = msgspec.toml.decode(text, type=FleetFile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"fleet file {str(path)!r}: {_named(text, error)}: correct the key or value"
        raise ConfigError(message) from error
    _check(path, found)
    return found


def _named(text: bytes, error: Exception) -> str:
    """Return the error in words; msgspec writes `[...]` for the name of a table, and here stands which one it is."""
    for kind, table in (("device", DeviceEntry), ("circuit", Circuit), ("switch", SwitchEntry)):
        if f"$.{kind}[...]" not in str(error):
            continue
        for name, entry in msgspec.toml.decode(text)[kind].items():
            try:
                msgspec.convert(entry, table)
            except msgspec.ValidationError as found:
                return f"[{kind}.{name}]: {found}"
    return str(error)


def _check(path: Path, found: FleetFile) -> None:
    serials: dict[str, str] = {}
    for name, device in found.device.items():
        if device.circuit is not None and device.circuit not in found.circuit:
            message = f"fleet file {str(path)!r}: device {name!r} hangs on circuit {device.circuit!r}: add [circuit.{device.circuit}]"
            raise ConfigError(message)
        if device.serial is not None and serials.setdefault(device.serial, name) != name:
            message = f"fleet file {str(path)!r}: {serials[device.serial]!r} and {name!r} have the same serial {device.serial!r}"
            raise ConfigError(message)
