"""Cutting the power of a board that does not come back: switches as plug-ins, and when that is done by itself.

A switch is one file here, one line in `SWITCHES` and a test against what its maker documents.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

SWITCHES: Mapping[str, str] = {
    "shelly": "edgemeter.provisioning.rescue.shelly:Shelly",
    "tasmota": "edgemeter.provisioning.rescue.tasmota_http:TasmotaHttp",
    "tasmota-mqtt": "edgemeter.provisioning.rescue.tasmota_mqtt:TasmotaMqtt",
    "uhubctl": "edgemeter.provisioning.rescue.uhubctl:Uhubctl",
    "external": "edgemeter.provisioning.rescue.external:External",
}


@dataclass(frozen=True, slots=True)
class Power:
    """Whether a switch gives power, None where it cannot tell; `warnings` say what is wrong with how it is set up."""

    is_on: bool | None
    warnings: tuple[str, ...] = ()


class PowerSwitch(Protocol):
    """One outlet or port; called from a thread that may wait. Constructed with a `Wiring`, without asking anything.

    Every method raises UnavailableError (it refuses, or is no such device), TransientError (it does not answer) or ConfigError.
    """

    def on(self) -> None:
        """Give power."""
        ...

    def off(self) -> None:
        """Take it away; it stays off until `on`."""
        ...

    def cycle(self, off_s: float) -> None:
        """Take power away for `off_s` and give it back; where the switch can time that itself, also if this server dies meanwhile."""
        ...

    def state(self) -> Power:
        """Return whether it gives power."""
        ...
