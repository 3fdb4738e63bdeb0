"""Cycling the power of a board that does not come back: switches as plug-ins, and when it is done automatically.

A switch is one file here, one line in `SWITCHES` and a test against what its maker documents.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

SWITCHES: Mapping[str, str] = {
    "shelly": "edgemeter.provisioning.rescue.shelly:ShellySwitch",
    "tasmota": "edgemeter.provisioning.rescue.tasmota:TasmotaHttp",
    "tasmota-mqtt": "edgemeter.provisioning.rescue.tasmota:TasmotaMqtt",
    "external": "edgemeter.provisioning.rescue.external:External",
}


@dataclass(frozen=True, slots=True)
class Power:
    """Whether a switch is on, None where it cannot tell; `warnings` name what is wrong with its configuration."""

    is_on: bool | None
    warnings: tuple[str, ...] = ()


class PowerSwitch(Protocol):
    """One outlet or port; called from a thread that may wait. Constructed with a `Wiring`, without any I/O.

    Every method raises UnavailableError (it refuses, or is another kind of device), TransientError (it does not answer) or ConfigError.
    """

    def turn(self, to: Literal["on", "off"]) -> None:
        """Switch on, or off until it is switched on."""

    def cycle(self, off_s: float) -> None:
        """Switch off for `off_s`, then on; by the switch's own timer where it has one, so that this server may die meanwhile."""

    def state(self) -> Power:
        """Return whether it is on."""
