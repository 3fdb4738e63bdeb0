"""Shelly plugs and relays that measure power, of any generation, read over HTTP.

The power is a mean of about a second. Some models show nothing below a few watts: try yours with a
known load first.

    [sensors.shelly]
    address = "192.0.2.7"
    # channel = "switch:0"                          # default: the sum of all that measure
    # user = "admin"
    # password_file = "/etc/edgemeter/shelly"

Protocol: Gen2 and later answer `GET /rpc/Shelly.GetStatus` with one object for each component
(`switch:0`, `pm1:0`, `em1:0`, `em:0`, `cover:0`, `light:0`): `apower` or `act_power` in W. Gen1
answers `GET /status` with `meters` and `emeters`: `power` in W. The energy counter has steps of
0.21 Wh (766 J) and is not used.
Source: Shelly Gen2 Device API, Switch, PM1, EM, EM1, Cover; Shelly Gen1 API, /status. Accuracy as
the maker states it: 1% class. Tested with: recorded answers of both generations, and a server that
plays them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.power.http_plug import HttpPlug, json_watts
from edgemeter.agent.power.values import json_object

GEN2, GEN1 = "/rpc/Shelly.GetStatus", "/status"
# The resolution of answers is 0.01 W for Gen1 and 0.1 W for Gen2.
RESOLUTION_W = 0.1
MEAN_S = 1.0
# Plugs may show 0 below this power.
LOW_W = 5.0
PHASES = ("a_act_power", "b_act_power", "c_act_power")
TOTALS = ("total_act_power", "apower", "act_power", "power")
# switch:0, pm1:0, em:0, em1:0, cover:0, light:0, rgbw:0, cct:0, ...
COMPONENT = re.compile(r"[a-z]\w*:\d+")


class Shelly(HttpPlug):
    """Reads one device, in the way of its generation."""

    sensor = "shelly"
    delay_ms = 1000 * MEAN_S
    _path: str | None = None

    def _fetched(self) -> bytes:
        if self._path is not None:
            return self.get(self._path)
        try:
            answer, self._path = self.get(GEN2), GEN2
        except UnavailableError as error:
            if "answers 404" not in str(error):
                raise
            answer, self._path = self.get(GEN1), GEN1
        return answer

    def _channels(self, response: bytes) -> dict[str, float | None]:
        document = json_object(response, "the Shelly")
        if "code" in document and "message" in document:
            raise UnavailableError(f"the Shelly answers {document['code']}: {document['message']}")
        channels = dict(_channels(document))
        if not channels:
            raise UnavailableError(
                "this Shelly shows no power (no apower, act_power or meters): it is a model that "
                "does not measure"
            )
        return channels

    def _limits(self, _response: bytes, power_w: float) -> tuple[float, list[str]]:
        warning = f"plugs may be wrong below {LOW_W:.0f} W: check this one with a known load"
        return RESOLUTION_W, [warning] if abs(power_w) < LOW_W else []


def _channels(document: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield each measuring channel with its power, in W.

    The power is None where the device calls its own reading invalid.
    """
    # Where a Gen1 device has both, the second are its relays' estimates of the same load.
    meters = next(
        (
            key
            for key in ("emeters", "meters")
            if isinstance(document.get(key), list) and document[key]
        ),
        None,
    )
    if meters is not None:
        for index, meter in enumerate(document[meters]):
            yield f"{meters[:-1]}:{index}", _power(meter) if isinstance(meter, dict) else None
        return
    parts = {
        f"channel:{document.get('id', 0)}": document,
        **{key: part for key, part in document.items() if COMPONENT.fullmatch(key)},
    }
    for key, part in parts.items():
        if isinstance(part, dict) and any(name in part for name in (*TOTALS, *PHASES)):
            yield key, _power(part)


def _power(part: Mapping[str, Any]) -> float | None:
    """Return the power of a component; that of three phases is their total."""
    if part.get("is_valid") is False:
        return None
    for name in TOTALS:
        if name in part:
            return json_watts(part[name])
    phases = [json_watts(part.get(name)) for name in PHASES]
    return None if None in phases else sum(power_w for power_w in phases if power_w is not None)
