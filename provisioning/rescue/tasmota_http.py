"""Plugs and relays with Tasmota firmware, over HTTP: `GET /cm?cmnd=Power1%20Off` answers `{"POWER1":"OFF"}`.

    switch = "tasmota://192.0.2.41"         # of several relays "tasmota://192.0.2.41/2"

Set `PowerOnState 1` on its console: with the default (3) a board that was off when the mains failed stays off; and never send it a
retained POWER message, which would override that at each start of the plug.

Source: Tasmota documentation, Commands (Power, Backlog, Delay, PowerOnState), PowerOnState configuration.
Tested with: a server that gives the documented answers; not yet on a device.
"""

import time
from typing import Any, Literal
from urllib.parse import quote

from edgemeter.agent.errors import UnavailableError
from edgemeter.provisioning.rescue import Power, cycling
from edgemeter.provisioning.rescue.http_switch import HttpSwitch
from edgemeter.provisioning.rescue.wiring import Wiring

ALWAYS_ON = 1
NOT_ALWAYS_ON = "PowerOnState is {}: set `PowerOnState 1` on its console, or it may stay off after a power cut of its own"
# `Delay` counts tenths of a second. Source: Tasmota documentation, Commands, Backlog.
TENTHS = 10


class TasmotaHttp:
    """One relay of one plug."""

    def __init__(self, wired: Wiring) -> None:
        self._http = HttpSwitch(wired)
        self._relay = f"Power{wired.part}"

    def on(self) -> None:
        """Give power."""
        self._set("On")

    def off(self) -> None:
        """Take it away."""
        self._set("Off")

    def cycle(self, off_s: float, sleep: cycling.Sleep = time.sleep) -> None:
        """Take it away; the plug itself gives it back."""
        self._ask(backlog(self._relay, off_s))
        cycling.await_timer(self, off_s, sleep)

    def state(self) -> Power:
        """Return whether it gives power, and whether it would after a cut of its own."""
        is_on = self._power(self._ask(self._relay))
        kept = self._ask("PowerOnState").get("PowerOnState")
        return Power(is_on, () if kept == ALWAYS_ON else (NOT_ALWAYS_ON.format(kept),))

    def _set(self, turn: Literal["On", "Off"]) -> None:
        if self._power(self._ask(f"{self._relay} {turn}")) is not (turn == "On"):
            message = f"{self._http.who} was told to turn {turn} and did not: is its relay interlocked?"
            raise UnavailableError(message)

    def _power(self, answer: dict[str, Any]) -> bool:
        is_on = said(answer, self._relay)
        if is_on is None:
            message = f"{self._http.who} answers {str(answer)[:80]!r}: it has no relay of that number"
            raise UnavailableError(message)
        return is_on

    def _ask(self, command: str) -> dict[str, Any]:
        http = self._http
        # Tasmota takes the password in the query.
        known = f"user={quote(http.user)}&password={quote(http.password())}&" if http.has_password else ""
        answer = http.get(f"/cm?{known}cmnd={quote(command)}")
        if "WARNING" in answer:
            message = f"{http.who} refuses ({answer['WARNING']}): give it user and password_file in a [switch.NAME]"
            raise UnavailableError(message)
        return answer


def backlog(relay: str, off_s: float) -> str:
    """Return the command that turns a relay off and, by itself, on again."""
    return f"Backlog {relay} Off; Delay {off_s * TENTHS:.0f}; {relay} On"


def said(answer: dict[str, Any], relay: str) -> bool | None:
    """Return whether an answer says that the relay is on; None where it says nothing of it. A relay that is alone has no number."""
    names = {relay.upper(), "POWER1", "POWER"} if relay in {"Power", "Power1"} else {relay.upper()}
    for name in names:
        value = answer.get(name)
        if value in {"ON", "OFF"}:
            return bool(value == "ON")
    return None
