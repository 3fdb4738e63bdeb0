"""Shelly plugs and relays that measure power, of all generations, over HTTP on the local network.

Gen2 and later answer `GET /rpc/Shelly.GetStatus` with one object for each component (`switch:0`, `pm1:0`, `em1:0`, `em:0`, `cover:0`,
`light:0`): `apower` or `act_power` in W. Gen1 answers `GET /status` with `meters` and `emeters`: `power` in W. Several measuring
channels are added up unless `channel` names one. The power is a mean of about a second. The energy counters are not used: on several
models they move in steps of 0.21 Wh, 766 J.

It sees all that the plug feeds, the power supply's loss included. Some models show nothing below a few watts: try yours with a known
load before you trust it on a small board.

    [sensors.shelly]
    address = "192.0.2.7"
    # channel = "switch:0"                          # default: all that measure
    # password_file = "/etc/edgemeter/shelly"       # user admin, or set user

Source: Shelly Gen2 Device API, Switch, PM1, EM, EM1, Cover; Shelly Gen1 API, /status. Accuracy as the maker states it: 1 % class.
Tested with: recorded answers of both generations, and a server that plays them; not yet on a device.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from edgemeter.agent.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power import Description, Rail, Reading
from edgemeter.agent.power.http_meter import HttpMeter, decoded, watts
from edgemeter.agent.power.world import HERE, World

GEN2, GEN1 = "/rpc/Shelly.GetStatus", "/status"
PERIOD_MS = 1000.0
# What the answers show: Gen1 0.01 W, Gen2 0.1 W.
RESOLUTION_W = 0.1
# Limits of 2 % and 0.1 W, taken as rectangular: standard uncertainties. Source: the makers' classes, 1 to 2 %.
GAIN_U_RATIO = 0.0115
OFFSET_U_W = 0.058
# Below this, plugs have been seen to show nothing at all.
LOW_W = 5.0
PHASES = ("a_act_power", "b_act_power", "c_act_power")
MEASURES = ("apower", "act_power", "total_act_power", "power", *PHASES)
# switch:0, pm1:0, em:0, em1:0, cover:0, light:0, rgbw:0, cct:0, ...
COMPONENT = re.compile(r"[a-z]\w*:\d+")
REFUSAL = re.compile(rb'"code"\s*:\s*-?\d+\s*,\s*"message"\s*:')


class Shelly:
    """Polls one device."""

    def __init__(
        self,
        address: str = "",
        channel: str = "",
        user: str = "admin",
        password_file: str = "",
        world: World = HERE,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._meter = HttpMeter("shelly", address, user, password_file)
        self._channel = channel
        self._world = world
        self._clock = clock
        self._path: str | None = None

    def describe(self) -> Description:
        """Return what the device is.

        Raises:
            AbsentError: no address is set.
            UnavailableError: it does not answer, does not measure, or refuses.
        """
        try:
            channels = self._channels()
        except TransientError as error:
            raise UnavailableError(str(error)) from error
        warnings = []
        if len(channels) > 1:
            warnings.append(f"{len(channels)} channels are added up ({', '.join(channels)}): set channel to measure one")
        if abs(sum(channels.values())) < LOW_W:
            warnings.append(f"plugs may be wrong below {LOW_W:.0f} W: check this one with a known load")
        return Description(
            id=f"shelly:{self._meter.address or 'recorded'}{f'/{self._channel}' if self._channel else ''}",
            scope="wall-ac",
            excludes=(),
            kind="power",
            period_ms=PERIOD_MS,
            resolution_w=RESOLUTION_W,
            gain_u_ratio=GAIN_U_RATIO,
            offset_u_w=OFFSET_U_W,
            warnings=tuple(warnings),
        )

    def read(self) -> Reading:
        """Return the power that the device shows.

        Raises:
            TransientError: this answer did not come, or held no power.
            UnavailableError: the device refuses, or does not measure.
        """
        begin = self._clock()
        channels = self._channels()
        rails = tuple(Rail(name, power_w) for name, power_w in channels.items())
        return Reading(taken_ns=(begin + self._clock()) // 2, power_w=sum(channels.values()), rails=rails)

    def close(self) -> None:
        """Close the connection."""
        self._meter.close()

    @staticmethod
    def recognises(content: bytes) -> bool:
        """Say whether it is a status, whole or cut, of either generation."""
        words = (b'"apower"', b'act_power"', b'"emeters"', b'"pm1:', b'"switch:', b'"em1:', b'"em:', b'"aenergy"', b"No handler for")
        gen1 = b'"meters"' in content or (b'"is_valid"' in content and b'"power"' in content)
        bare = b'"output"' in content and b'"source"' in content
        return b"{" in content and (any(word in content for word in words) or gen1 or bare or REFUSAL.search(content) is not None)

    def _channels(self) -> dict[str, float]:
        """Return the power of each measuring channel that was asked for, W."""
        found = dict(channels(decoded(self._answer(), "the Shelly", _measures)))
        if not found:
            message = "this Shelly shows no power (no apower, act_power or meters): it is a model that does not measure"
            raise UnavailableError(message)
        if self._channel and self._channel not in found:
            message = f"[sensors.shelly] channel = {self._channel!r}: this device has {', '.join(found)}"
            raise ConfigError(message)
        chosen = {name: found[name] for name in ([self._channel] if self._channel else found)}
        for name, power_w in chosen.items():
            if power_w is None:
                message = f"the Shelly's channel {name} gives no valid power at the moment"
                raise TransientError(message)
        return {name: power_w for name, power_w in chosen.items() if power_w is not None}

    def _answer(self) -> bytes:
        if self._world.content is not None:
            return self._world.content
        if self._path is not None:
            return self._meter.get(self._path)
        try:
            answer, self._path = self._meter.get(GEN2), GEN2
        except UnavailableError as error:
            if "answers 404" not in str(error):
                raise
            answer, self._path = self._meter.get(GEN1), GEN1
        return answer


def channels(document: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield each measuring channel of a status with its power, W; None where the device calls its own reading invalid.

    `document` is a status of the whole device or of one component, of either generation, as HTTP or MQTT give it.

    Raises:
        UnavailableError: it is an error that the device reports.
    """
    for wrapper in ("result", "params", "error"):
        if isinstance(document.get(wrapper), dict):
            document = document[wrapper]
    if "code" in document and "message" in document:
        message = f"the Shelly answers {document['code']}: {document['message']}"
        raise UnavailableError(message)
    # Where a Gen1 device has both, the second are its relays' estimates of the same load.
    for key in ("emeters", "meters"):
        if isinstance(document.get(key), list) and document[key]:
            for place, meter in enumerate(document[key]):
                yield f"{key[:-1]}:{place}", _power(meter) if isinstance(meter, dict) else None
            return
    if any(key in document for key in MEASURES):
        yield f"channel:{document.get('id', 0)}", _power(document)
    for key, part in document.items():
        if isinstance(part, dict) and COMPONENT.fullmatch(key) and any(name in part for name in MEASURES):
            yield key, _power(part)


def _measures(document: Mapping[str, Any]) -> bool:
    try:
        return any(True for _ in channels(document))
    except UnavailableError:
        return False


def _power(part: Mapping[str, Any]) -> float | None:
    """Return the power of a component; that of three phases is their total."""
    if part.get("is_valid") is False:
        return None
    for name in ("total_act_power", "apower", "act_power", "power"):
        if name in part:
            return watts(part[name])
    phases = [watts(part.get(name)) for name in PHASES]
    return None if None in phases else sum(power_w for power_w in phases if power_w is not None)
