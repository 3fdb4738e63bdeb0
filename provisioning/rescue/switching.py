"""Shared code of the switches: power that is restored, the wait for a switch's own timer, and one GET to a switch."""

import http.client
import time
from collections.abc import Callable
from typing import Any

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.http_client import DeviceClient, json_object, password_from
from edgemeter.provisioning.rescue import PowerSwitch
from edgemeter.provisioning.rescue.wiring import Wiring

# The wait beyond the switch's own timer, and the attempts to restore the power.
MARGIN_S = 2.0
TRIES = 5
PAUSE_S = 3.0
TIMEOUT_S = 5.0

Sleep = Callable[[float], None]


def wait_for_timer(switch: PowerSwitch, off_s: float, sleep: Sleep = time.sleep) -> None:
    """Wait until the switch's own timer has restored the power, and restore it where it has not; raises EdgemeterError as the switch."""
    sleep(off_s + MARGIN_S)
    if switch.state().is_on is not True:
        restore_power(switch, sleep)


def restore_power(switch: PowerSwitch, sleep: Sleep = time.sleep) -> None:
    """Switch on, and try again where that fails; raises UnavailableError if the board may be without power."""
    for tries_left in range(TRIES - 1, -1, -1):
        try:
            switch.turn("on")
        except EdgemeterError as error:
            if not tries_left:
                raise UnavailableError(f"the power is off and cannot be restored: {error}") from error
            sleep(PAUSE_S)
        else:
            return


class HttpSwitch:
    """The switch of a wiring, over HTTP."""

    def __init__(self, wired: Wiring) -> None:
        entry = wired.entry
        self.who = wired.who
        self.user, self.has_password = entry.user, entry.password_file is not None
        self._password_file = entry.password_file
        self._client = DeviceClient(self.who, wired.place, self.user, self.password, TIMEOUT_S)

    def password(self) -> str:
        """Return the password from its file; raises ConfigError if there is none, or it cannot be read."""
        if self._password_file is None:
            raise ConfigError(
                f"{self.who} requires a password: give it a [switch.NAME] with address and password_file, and write switch = 'switch:NAME'"
            )
        return password_from(self._password_file, self.who)

    def get(self, path: str) -> dict[str, Any]:
        """Return what it answers to GET `path`, a JSON object.

        Raises:
            TransientError: it does not answer, or not with a whole object.
            UnavailableError: it refuses, or is another kind of device.
            ConfigError: it requires a password that was not given.
        """
        try:
            status, body = self._client.get(path)
        finally:
            # Switches are used minutes apart: a connection would not stay.
            self._client.close()
        if status != http.client.OK:
            # Not the query: it may hold a password.
            text = body[:120].decode(errors="replace").strip()
            raise UnavailableError(
                f"{self.who} answers {status} to {path.partition('?')[0]} ({text!r}): check that it is such a device, with this channel"
            )
        return json_object(body, self.who)
