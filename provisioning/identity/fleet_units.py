"""The systemd units of a fleet's server: broker, service and collector, and one target that starts and stops all three."""

import os
import pwd
import shlex
import shutil
import sys
from pathlib import Path

from edgemeter import provisioning
from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder

TARGET = "edgemeter-fleet.target"
BROKER_UNIT, SERVICE_UNIT, COLLECTOR_UNIT = "edgemeter-broker.service", "edgemeter-fleet.service", "edgemeter-collector.service"
SYSTEM_FOLDER = "/etc/systemd/system/"

# Options by environment variable, one a line: EDGEMETER_INFLUX=...
ENVIRONMENT_FILES = {SERVICE_UNIT: "/etc/edgemeter/fleet.env", COLLECTOR_UNIT: "/etc/edgemeter/collector.env"}

_UNITS = Path(provisioning.__file__).with_name("units")
# A process that hangs is ended and started again; a broker that is not up yet is waited for.
_OURS = """\
Type=notify
NotifyAccess=main
WatchdogSec=180
ExecStart={command}
EnvironmentFile=-{environment}"""

# Lists of revoked certificates that it has read already get no second name.
_BROKER = """\
ExecStartPre=-/bin/sh -c {clear}
ExecStart={command}"""


def unit_texts(folder: FleetFolder, program: str = sys.executable) -> dict[str, str]:
    """Return the units for the fleet by name, run by the Python `program`; raises ConfigError if a unit cannot hold the folder's name."""
    path = str(folder.path.absolute())
    if not path.isprintable():
        raise ConfigError(f"the name of the fleet's folder {path!r} contains a control character: rename it")
    mosquitto = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    clear = f"rm -f {shlex.quote(str(folder.revoked_lists.absolute()))}/*.r*"
    broker = _BROKER.format(command=_words(mosquitto, "-c", f"{path}/broker/mosquitto.conf"), clear=_words(clear))
    serve = _words(program, "-m", "edgemeter.agent.cli", "fleet", "--folder", path, "serve")
    collect = _words(program, "-m", "edgemeter.agent.cli", "collector", "up", "--folder", path)
    home, after = str(config.home().absolute()), f" {BROKER_UNIT}"
    inside = "AF_INET AF_INET6 AF_UNIX"
    hardened = "PrivateDevices=yes\nCapabilityBoundingSet=\n"
    return {
        BROKER_UNIT: _service(
            "fleet broker (mosquitto)", broker, (path,), families=inside, extra=f"{hardened}MemoryDenyWriteExecute=yes\n"
        ),
        # USB power switches (uhubctl) need devices and netlink; a command over ssh reads its owner's home.
        SERVICE_UNIT: _service("fleet service", _ours(SERVICE_UNIT, serve), (path,), after, families=f"{inside} AF_NETLINK"),
        COLLECTOR_UNIT: _service("collector", _ours(COLLECTOR_UNIT, collect), (home,), after, families=inside, extra=hardened),
        TARGET: _template("fleet.target").format(units=f"{BROKER_UNIT} {SERVICE_UNIT} {COLLECTOR_UNIT}"),
    }


def install_lines(folder: FleetFolder) -> tuple[str, str, str]:
    """Return the three commands that install the units and start everything."""
    path = shlex.quote(str(folder.path.absolute()))
    return (
        f"sudo cp {path}/edgemeter-*.service {path}/{TARGET} {SYSTEM_FOLDER}",
        "sudo systemctl daemon-reload",
        f"sudo systemctl enable --now {TARGET}",
    )


def _ours(unit: str, command: str) -> str:
    return _OURS.format(command=command, environment=ENVIRONMENT_FILES[unit])


def _service(description: str, start: str, writable: tuple[str, ...], after: str = "", *, families: str, extra: str = "") -> str:
    paths = " ".join(_quoted(path) for path in writable)
    return _template("fleet.service").format(
        what=description, start=start, after=after, target=TARGET, user=_user(), writable=paths, families=families, more=extra
    )


def _template(name: str) -> str:
    return (_UNITS / f"{name}.in").read_text(encoding="utf-8")


def _words(*arguments: str) -> str:
    # The words of a command expand variables too.
    return " ".join(_quoted(argument).replace("$", "$$") for argument in arguments)


def _quoted(argument: str) -> str:
    escaped = argument.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
