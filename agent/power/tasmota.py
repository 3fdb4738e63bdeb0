"""Plugs with Tasmota firmware that measure power, over HTTP on the local network.

`GET /cm?cmnd=Status%208` answers `StatusSNS.ENERGY.Power` in W (`Status%2010` in the same form; firmware before 6 `StatusPWR`); with
several channels or phases a list, which is added up. Whole watts by default: `WattRes 1` on the plug's console gives a decimal. MQTT
telemetry comes every 300 s unless it was changed, so the plug is polled instead. The energy counter, in steps of 1 Wh, is not used.

It sees all that the plug feeds, the power supply's loss included. The chips are calibrated by the user, or not at all: `PowerSet`.

    [sensors.tasmota]
    address = "192.0.2.8"
    # channel = "1"                                 # of several, counted from 1; default: all
    # password_file = "/etc/edgemeter/tasmota"      # user admin, or set user

Source: Tasmota documentation, Commands (Status, WattRes, TelePeriod) and Power Monitoring Calibration.
Tested with: recorded answers, and a server that plays them; not yet on a device.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from edgemeter.agent.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power import Description, Rail, Reading
from edgemeter.agent.power.http_meter import HttpMeter, decoded, watts
from edgemeter.agent.power.world import HERE, World

COMMANDS = ("Status 8", "Status 10")
PERIOD_MS = 1000.0
# Limits of 2 % and 0.1 W, taken as rectangular. Source: the class of the chips (HLW8012, BL0937, CSE7766) once calibrated.
GAIN_U_RATIO = 0.0115
OFFSET_U_W = 0.058
UNKNOWN = re.compile(rb'\{\s*"Command"\s*:\s*"Unknown"')
POWER = re.compile(rb'"Power"\s*:\s*\[?\s*"?\s*-?\d+(?:\.(\d+))?')


class Tasmota:
    """Polls one plug."""

    def __init__(
        self,
        address: str = "",
        channel: str = "",
        user: str = "admin",
        password_file: str = "",
        world: World = HERE,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._meter = HttpMeter("tasmota", address, user, password_file)
        self._channel = channel
        self._world = world
        self._clock = clock
        self._command: str | None = None

    def describe(self) -> Description:
        """Return what the plug is.

        Raises:
            AbsentError: no address is set.
            UnavailableError: it does not answer, does not measure, or refuses.
        """
        try:
            answer = self._answer()
            channels = self._watts(answer)
        except TransientError as error:
            raise UnavailableError(str(error)) from error
        decimals = POWER.search(answer)
        resolution_w = 10.0 ** -len((decimals.group(1) if decimals else None) or b"")
        warnings = []
        if resolution_w >= 1:
            warnings.append("it shows whole watts: `WattRes 1` on its console gives a decimal")
        if len(channels) > 1:
            warnings.append(f"{len(channels)} channels are added up: set channel to measure one")
        return Description(
            id=f"tasmota:{self._meter.address or 'recorded'}{f'/{self._channel}' if self._channel else ''}",
            scope="wall-ac",
            excludes=(),
            kind="power",
            period_ms=PERIOD_MS,
            resolution_w=resolution_w,
            gain_u_ratio=GAIN_U_RATIO,
            offset_u_w=OFFSET_U_W,
            warnings=tuple(warnings),
        )

    def read(self) -> Reading:
        """Return the power that the plug shows.

        Raises:
            TransientError: this answer did not come, or held no power.
            UnavailableError: the plug refuses, or does not measure.
        """
        begin = self._clock()
        channels = self._watts(self._answer())
        rails = tuple(Rail(name, power_w) for name, power_w in channels.items())
        return Reading(taken_ns=(begin + self._clock()) // 2, power_w=sum(channels.values()), rails=rails)

    def close(self) -> None:
        """Close the connection."""
        self._meter.close()

    @staticmethod
    def recognises(content: bytes) -> bool:
        """Say whether it is a status or a telemetry message, whole or cut, or one of its refusals."""
        words = (b'"ENERGY"', b'"StatusSNS"', b'"StatusPWR"', b"Need user=")
        return b"{" in content and (any(word in content for word in words) or UNKNOWN.search(content) is not None)

    def _watts(self, answer: bytes) -> dict[str, float]:
        listed = _listed(decoded(answer, "the Tasmota plug", lambda document: _energy(document) is not None))
        found = {str(place): power_w for place, power_w in enumerate(listed, start=1)}
        if self._channel and self._channel not in found:
            message = f"[sensors.tasmota] channel = {self._channel!r}: this plug has {', '.join(found)}"
            raise ConfigError(message)
        chosen = {name: found[name] for name in ([self._channel] if self._channel else found)}
        if not chosen or any(power_w is None for power_w in chosen.values()):
            message = f"the Tasmota plug gives no power in {answer[:80].decode(errors='replace')!r}"
            raise TransientError(message)
        return {name: power_w for name, power_w in chosen.items() if power_w is not None}

    def _answer(self) -> bytes:
        if self._world.content is not None:
            return self._world.content
        if self._command is not None:
            return self._meter.get(self._path(self._command))
        for command in COMMANDS:
            answer = self._meter.get(self._path(command))
            if b'"ENERGY"' in answer or b'"StatusPWR"' in answer:
                self._command = command
                break
        return answer

    def _path(self, command: str) -> str:
        # Tasmota takes the password in the query; only its newest versions know HTTP authentication.
        known = f"user={quote(self._meter.user)}&password={quote(self._meter.password())}&" if self._meter.password_file else ""
        return f"/cm?{known}cmnd={quote(command)}"


def _listed(document: Mapping[str, Any]) -> list[float | None]:
    """Return the power of each channel, W, None where one is no number.

    Raises:
        UnavailableError: it is a refusal, or of a plug that does not measure.
    """
    if "WARNING" in document:
        message = f"the Tasmota plug refuses ({document['WARNING']}): set user and password_file in [sensors.tasmota]"
        raise UnavailableError(message)
    energy = _energy(document)
    if energy is None:
        message = "this Tasmota device shows no ENERGY.Power: it does not measure power, or answers another command"
        raise UnavailableError(message)
    power = energy["Power"]
    return [watts(one) for one in power] if isinstance(power, list) else [watts(power)]


def _energy(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    sensors = document.get("StatusSNS", document)
    energy = (sensors.get("ENERGY") or sensors.get("Energy")) if isinstance(sensors, dict) else None
    energy = energy or document.get("StatusPWR")
    return energy if isinstance(energy, dict) and "Power" in energy else None
