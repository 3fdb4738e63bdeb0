"""Shelly plugs and relays of all generations, over HTTP.

Gen2 and later: `GET /rpc/Switch.Set?id=0&on=true` answers `{"was_on":false}`; `toggle_after` switches back; `Switch.GetStatus` has
`output`. Gen1: `GET /relay/0?turn=on` answers the relay with `ison`; `timer` switches back. `GET /shelly` says which it is (`gen`),
without a password.

    switch = "shelly://192.0.2.31"          # the first channel; of several "shelly://192.0.2.31/1"

A Shelly may also be the power meter of its board: its power is never cut automatically while anybody measures with it.

Source: Shelly Gen2 Device API, Switch; Shelly Gen1 API, /relay/{index} and /settings/relay/{index}.
Tested with: a server that gives the documented answers; not yet on a device.
"""

import time
from typing import Literal

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.rescue import Power
from edgemeter.provisioning.rescue.wiring import HttpSwitch, Sleep, Wiring, wait_for_timer

# A default that leaves the board without power.
STAYS_OFF = "it stays off after a power cut of its own: set its power-on default to on"


class ShellySwitch:
    """One channel of one device."""

    def __init__(self, wired: Wiring) -> None:
        self._http = HttpSwitch(wired)
        self._is_gen1: bool | None = None
        if wired.part and not wired.part.isdecimal():
            raise ConfigError(f"{self._http.who}: the channel is a number: shelly://{wired.place}/0")
        self._channel = int(wired.part or 0)

    def turn(self, to: Literal["on", "off"], timer: str = "") -> None:
        """Switch on or off, with the parameter of the Shelly's own timer, if any."""
        tail = f"&{timer}" if timer else ""
        if self._gen1():
            answer = self._http.get(f"/relay/{self._channel}?turn={to}{tail}")
            is_done = answer.get("ison") is (to == "on")
        else:
            answer = self._http.get(f"/rpc/Switch.Set?id={self._channel}&on={'true' if to == 'on' else 'false'}{tail}")
            is_done = "was_on" in answer
        if not is_done:
            raise UnavailableError(
                f"{self._http.who} does not turn {to} and answers {str(answer)[:80]!r}: check that it is a relay and not protected"
            )

    def cycle(self, off_s: float, sleep: Sleep = time.sleep) -> None:
        """Switch off; the Shelly's own timer switches on again."""
        self.turn("off", f"timer={off_s:.0f}" if self._gen1() else f"toggle_after={off_s:g}")
        wait_for_timer(self, off_s, sleep)

    def state(self) -> Power:
        """Return whether it is on, and whether it would be after a power cut of its own."""
        if self._gen1():
            answer, setting = self._http.get(f"/relay/{self._channel}"), f"/settings/relay/{self._channel}"
            default = self._http.get(setting).get("default_state")
        else:
            answer = self._http.get(f"/rpc/Switch.GetStatus?id={self._channel}")
            default = self._http.get(f"/rpc/Switch.GetConfig?id={self._channel}").get("initial_state")
        is_on = answer.get("ison" if self._gen1() else "output")
        if not isinstance(is_on, bool):
            raise UnavailableError(f"{self._http.who} does not report whether it is on: it has no such relay")
        return Power(is_on, (STAYS_OFF,) if default == "off" else ())

    def _gen1(self) -> bool:
        if self._is_gen1 is None:
            device = self._http.get("/shelly")
            if "gen" not in device and "type" not in device:
                raise UnavailableError(f"{self._http.who} does not identify itself: it is not a Shelly")
            self._is_gen1 = "gen" not in device
        return self._is_gen1
