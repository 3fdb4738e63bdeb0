"""The birth message: the device's identity and equipment.

Finding out needs libraries that the daemon should not keep in memory, so this runs in a separate
process: `python -m edgemeter.agent.delivery.birth DEVICE FLEET SESSION [CONFIG]`.
"""

import logging
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import messages

logger = logging.getLogger(__name__)

PATIENCE_S = 120.0


def read(device: str, fleet: str, session: int, settings: config.Config) -> messages.Birth:
    from edgemeter.agent.machine import fingerprint  # noqa: PLC0415 - see above
    from edgemeter.agent.power import detect  # noqa: PLC0415 - see above

    machine = fingerprint.read()
    return _birth(
        device,
        fleet,
        session,
        board=machine.board,
        os=machine.os,
        arch=machine.arch,
        runtimes=machine.libraries,
        sensors=tuple(
            sensor.name for sensor in detect.detect_sensors(settings.sensors) if sensor.description
        ),
    )


def read_apart(device: str, fleet: str, session: int, path: str | None) -> messages.Birth:
    """Return the birth of this device from a separate process; only its names if that fails.

    `path` is the configuration.
    """
    command = [
        sys.executable,
        "-m",
        "edgemeter.agent.delivery.birth",
        device,
        fleet,
        str(session),
        *([path] if path else []),
    ]
    try:
        completed = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            timeout=PATIENCE_S,
        )
        return messages.decode_birth(completed.stdout)
    except (OSError, subprocess.SubprocessError, ConfigError) as error:
        logger.warning(
            "cannot find out what this device can run (%s): it reports its name only", error
        )
    return _birth(device, fleet, session, board=None, os=None, arch=platform.machine(), runtimes={})


def _birth(device: str, fleet: str, session: int, **described: Any) -> messages.Birth:
    from importlib.metadata import version  # noqa: PLC0415 - see above

    return messages.Birth(
        device=device, fleet=fleet, session=session, agent=version("edgemeter"), **described
    )


if __name__ == "__main__":
    _device, _fleet, _session, *_path = sys.argv[1:]
    _found = read(_device, _fleet, int(_session), config.read(Path(_path[0]) if _path else None))
    sys.stdout.buffer.write(messages.encode_message(_found))
