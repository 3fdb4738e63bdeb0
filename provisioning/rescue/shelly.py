"""Shelly plugs and relays of all generations, over HTTP.

Gen2 and later: `GET /rpc/Switch.Set?id=0&on=true` answers `{"was_on":false}`; `toggle_after` turns back by itself; `Switch.GetStatus` has
`output`. Gen1: `GET /relay/0?turn=on` answers the relay with `ison`; `timer` turns back by itself. `GET /shelly` says which it is (`gen`),
without a password.

    switch = "shelly://192.0.2.31"          # the first channel; of several "shelly://192.0.2.31/1"

Many a Shelly also is the meter of the board that hangs on it: its power is never cut by itself while anybody measures with it.

Source: Shelly Gen2 Device API, Switch; Shelly Gen1 API, /relay/{index} and /settings/relay/{index}.
Tested with: a server that gives the documented answers; not yet on a device.
"""

import time
from typing import Literal

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.provisioning.rescue import Power, cycling
from edgemeter.provisioning.rescue.http_switch import HttpSwitch
from edgemeter.provisioning.rescue.wiring import Wiring

# What it does when its own power comes back, where that leaves the board without.
STAYS_OFF = "after a power cut of its own it stays off: set its power-on default to on"


class Shelly:
    """One channel of one device."""

    def __init__(self, wired: Wiring) -> None:
        self._http = HttpSwitch(wired)
        self._is_gen1: bool | None = None
        if wired.part and not wired.part.isdecimal():
            message = f"{self._http.who}: the channel is a number: shelly://{wired.place}/0"
            raise ConfigError(message)
        self._channel = int(wired.part or 0)

    def on(self) -> None:
        """Give power."""
        self._set("on")

    def off(self) -> None:
        """Take it away."""
        self._set("off")

    def cycle(self, off_s: float, sleep: cycling.Sleep = time.sleep) -> None:
        """Take it away; the Shelly's own timer gives it back."""
        self._set("off", f"timer={off_s:.0f}" if self._gen1() else f"toggle_after={off_s:g}")
        cycling.await_timer(self, off_s, sleep)

    def state(self) -> Power:
        """Return whether it gives power, and whether it would after a cut of its own."""
        if self._gen1():
            answer, setting = self._http.get(f"/relay/{self._channel}"), f"/settings/relay/{self._channel}"
            default = self._http.get(setting).get("default_state")
        else:
            answer = self._http.get(f"/rpc/Switch.GetStatus?id={self._channel}")
            default = self._http.get(f"/rpc/Switch.GetConfig?id={self._channel}").get("initial_state")
        is_on = answer.get("ison" if self._gen1() else "output")
        if not isinstance(is_on, bool):
            message = f"{self._http.who} does not say whether it is on: it has no such relay"
            raise UnavailableError(message)
        return Power(is_on, (STAYS_OFF,) if default == "off" else ())

    def _set(self, turn: Literal["on", "off"], timer: str = "") -> None:
        tail = f"&{timer}" if timer else ""
        if self._gen1():
            answer = self._http.get(f"/relay/{self._channel}?turn={turn}{tail}")
            is_done = answer.get("ison") is (turn == "on")
        else:
            answer = self._http.get(f"/rpc/Switch.Set?id={self._channel}&on={'true' if turn == 'on' else 'false'}{tail}")
            is_done = "was_on" in answer
        if not is_done:
            message = f"{self._http.who} was told to turn {turn} and answers {str(answer)[:80]!r}: is it protected, or no relay?"
            raise UnavailableError(message)

    def _gen1(self) -> bool:
        if self._is_gen1 is None:
            told = self._http.get("/shelly")
            if "gen" not in told and "type" not in told:
                message = f"{self._http.who} does not say what it is: it is no Shelly"
                raise UnavailableError(message)
            self._is_gen1 = "gen" not in told
        return self._is_gen1
