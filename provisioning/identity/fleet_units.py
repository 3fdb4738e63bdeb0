"""The systemd units of a fleet's server.

They are broker, service and collector, and one target that starts and stops all three.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path

from edgemeter import provisioning
from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder

TARGET = "edgemeter-fleet.target"
BROKER_UNIT, SERVICE_UNIT, COLLECTOR_UNIT = (
    "edgemeter-broker.service",
    "edgemeter-fleet.service",
    "edgemeter-collector.service",
)


def unit_texts(folder: FleetFolder, program: str = sys.executable) -> dict[str, str]:
    """Return the fleet's units by name, run by the Python `program`.

    Raises:
        ConfigError: a unit cannot contain the folder's name.
    """
    path = folder.path.absolute()
    if not str(path).isprintable():
        raise ConfigError(
            f"the name of the fleet's folder {str(path)!r} contains a control character: rename it"
        )
    values = {
        "folder": _quoted(str(path)),
        "home": _quoted(str(config.home().absolute())),
        "openssl_conf": _quoted(f"OPENSSL_CONF={path}/broker/openssl.cnf"),
        "folder_word": _word(str(path)),
        "python": _word(program),
        "mosquitto": _word(shutil.which("mosquitto") or "/usr/sbin/mosquitto"),
        "mosquitto_conf": _word(f"{path}/broker/mosquitto.conf"),
        "clear": _word(f"rm -f {shlex.quote(str(folder.revoked_lists.absolute()))}/*.r*"),
        "hardening": _template("fleet-hardening").format(user=os.getuid()),
    }
    return {
        unit: _template(unit).format(**values)
        for unit in (BROKER_UNIT, SERVICE_UNIT, COLLECTOR_UNIT, TARGET)
    }


def install_lines(folder: FleetFolder) -> tuple[str, str, str]:
    """Return the three commands that install the units and start everything."""
    path = shlex.quote(str(folder.path.absolute()))
    return (
        f"sudo cp {path}/edgemeter-*.service {path}/{TARGET} /etc/systemd/system/",
        "sudo systemctl daemon-reload",
        f"sudo systemctl enable --now {TARGET}",
    )


def _template(name: str) -> str:
    return (Path(provisioning.__file__).with_name("units") / f"{name}.in").read_text(
        encoding="utf-8"
    )


def _word(argument: str) -> str:
    # Variables are expanded in the words of a command too.
    return _quoted(argument).replace("$", "$$")


def _quoted(argument: str) -> str:
    escaped = argument.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
