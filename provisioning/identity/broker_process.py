"""The running broker: told to read its files again, and made to drop a device that is out."""

import logging
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.mqtt_session import Message, MqttSession, Profile
from edgemeter.agent.errors import UnavailableError
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.fleet_file import Server

logger = logging.getLogger(__name__)

RELOAD_S = 30.0
TAKE_OVER_S = 5.0
START_S = 1.0
PROGRAM = "mosquitto"


def pid_file(folder: FleetFolder, server: Server) -> Path:
    """Return where the broker's process id stands."""
    return Path(server.broker_pid_file) if server.broker_pid_file else folder.broker / "mosquitto.pid"


def reload(folder: FleetFolder, server: Server, proc: Path = Path("/proc")) -> bool:
    """Make the broker read its files again; return whether one was there to be told.

    Raises:
        UnavailableError: it cannot be told.
    """
    if server.broker_reload:
        _run(server.broker_reload)
        return True
    number = _running(pid_file(folder, server), proc)
    if number is None:
        return False
    try:
        os.kill(number, signal.SIGHUP)
    except ProcessLookupError:
        return False
    except OSError as error:
        message = (
            f"cannot tell the broker, process {number}, to read its files again ({error.strerror}): run this as its owner, "
            "or name a command that does it in fleet.toml ([server] broker_reload)"
        )
        raise UnavailableError(message) from error
    return True


def throw_out(address: BrokerAddress, device: str, last_word: tuple[str, bytes] | None = None) -> None:
    """End the session of `device` by taking it over once, as an operator; a broker that reads its list of revoked ones lets nobody back.

    `last_word` (topic, payload) is left retained in the name of the device, which cannot say so itself any more.

    Raises:
        UnavailableError: no broker answers.
        ConfigError: it refuses the operator.
    """
    events = _Deaf()
    session = MqttSession(address, Profile(device), events)
    try:
        session.connect(TAKE_OVER_S)
        if last_word is not None:
            session.publish(*last_word, lasting="retained")
            session.flush(TAKE_OVER_S)
    finally:
        session.close()
    if events.refusal is not None:
        message = "%r is out, and its state still says what it said last: the broker refuses ours (%s); compare its ACL with that of init"
        logger.warning(message, device, events.refusal)


class _Deaf:
    """Takes a session's events and keeps the broker's refusal."""

    def __init__(self) -> None:
        self.refusal: str | None = None

    def connected(self) -> None:
        """Session event."""

    def disconnected(self, _reason: str) -> None:
        """Session event."""

    def received(self, _message: Message) -> None:
        """Session event."""

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's word on ours."""
        self.refusal = refusal


def _run(command: tuple[str, ...]) -> None:
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=RELOAD_S)
    except (OSError, subprocess.SubprocessError) as error:
        message = f"the command that makes the broker read its files again failed ({error}): correct broker_reload in fleet.toml"
        raise UnavailableError(message) from error


def _running(path: Path, proc: Path) -> int | None:
    """Return the broker's process; None where the file names none, or one that is another program by now."""
    try:
        number = int(path.read_text().strip())
        program = (proc / str(number) / "comm").read_text().strip()
    except (OSError, ValueError):
        return None
    if number <= 1 or program != PROGRAM:
        return None
    # While it starts, a SIGHUP would end it.
    deadline = time.monotonic() + START_S
    while not _catches_hangups(proc / str(number) / "status"):
        if time.monotonic() > deadline:
            return None
        time.sleep(0.02)
    return number


def _catches_hangups(status: Path) -> bool:
    try:
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
    except OSError:
        return False
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGHUP - 1) & 1)
