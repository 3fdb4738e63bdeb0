"""The systemd unit of the fleet's service, written by `edgemeter fleet init` beside the fleet's files, whose owner it runs as."""

import os
import pwd
import shlex
import sys

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.fleet_folder import FleetFolder

NAME = "edgemeter-fleet.service"
# Where the options stand that have a variable: EDGEMETER_BROKER, EDGEMETER_CONTENT_PORT, EDGEMETER_CONTENT_LISTEN.
ENVIRONMENT_FILE = "/etc/edgemeter/fleet.env"

# Power switches by USB (uhubctl) need the devices and netlink, and whoever tells a broker elsewhere over ssh its owner's home, to read.
_UNIT = """\
# Written by `edgemeter fleet init`, which puts its own back. Settings of yours go into a drop-in (systemctl edit edgemeter-fleet), options
# into {environment} as EDGEMETER_BROKER=..., EDGEMETER_CONTENT_PORT=..., one a line.
#   sudo cp {here} /etc/systemd/system/ && sudo systemctl enable --now edgemeter-fleet

[Unit]
Description=Edgemeter fleet service
Documentation=man:systemd.service(5)
After=network-online.target mosquitto.service
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={program} -m edgemeter.agent.cli fleet serve --folder {folder}
EnvironmentFile=-{environment}
User={user}
UMask=0077
# A broker that is not up yet is waited for; jobs wait in the registry meanwhile.
Restart=always
RestartSec=2
TimeoutStopSec=60
LimitNOFILE=65536

NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={writable}
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""


def text(folder: FleetFolder, program: str = sys.executable) -> str:
    """Return the unit for the fleet in `folder`, run by the Python interpreter at `program`.

    Raises:
        ConfigError: a unit cannot hold the folder's name.
    """
    path = str(folder.path.absolute())
    if not path.isprintable():
        message = f"the fleet's folder {path!r} has a control character in its name: give it another name"
        raise ConfigError(message)
    return _UNIT.format(
        environment=ENVIRONMENT_FILE,
        here=shlex.quote(f"{path}/{NAME}"),
        program=_word(program),
        folder=_word(path),
        user=_user(),
        writable=_quoted(path),
    )


def _word(argument: str) -> str:
    # A command's words know variables too.
    return _quoted(argument).replace("$", "$$")


def _quoted(argument: str) -> str:
    escaped = _specified(argument).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _specified(argument: str) -> str:
    return argument.replace("%", "%%")


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
