"""Plugs and relays that measure power, over HTTP on the local network: Shelly of all generations, and Tasmota firmware.

They see all that the plug feeds, the power supply's loss included. Several measuring channels are added up unless `channel` names one.
The energy counters are not used: their steps (0.21 Wh, which is 766 J, or 1 Wh) are too coarse. The class of each sensor is its data sheet.

    [sensors.shelly]
    address = "192.0.2.7"
    # channel = "switch:0"                          # default: all that measure
    # user = "admin"
    # password_file = "/etc/edgemeter/shelly"

    [sensors.tasmota]
    address = "192.0.2.8"
    # channel = "1"                                 # default: all that measure; counted from 1
    # user = "admin"
    # password_file = "/etc/edgemeter/tasmota"
"""

import http.client
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.http_client import DeviceClient, json_number, json_object, password_from
from edgemeter.agent.power import AbsentError, Description, Rail, Reading
from edgemeter.agent.power.values import Averaging, as_unavailable, averaging_by

TIMEOUT_S = 3.0
# More than the meters of any house carry (three phases of 400 A): what shows more is garbled.
HIGHEST_W = 1e6


def json_watts(value: Any) -> float | None:
    """Return a number of watts that a meter can show; None of anything else."""
    power_w = json_number(value)
    return None if power_w is None or abs(power_w) > HIGHEST_W else power_w


PERIOD_MS = 1000.0
# Limits of 2% and 0.1 W, taken as rectangular: standard uncertainties. Source: the makers' classes, 1 to 2%, and that of Tasmota's
# chips (HLW8012, BL0937, CSE7766) once calibrated.
GAIN_U_RATIO = 0.0115
OFFSET_U_W = 0.058

GEN2, GEN1 = "/rpc/Shelly.GetStatus", "/status"
# What the answers show: Gen1 0.01 W, Gen2 0.1 W.
SHELLY_RESOLUTION_W = 0.1
# The power that a Shelly shows is a mean of about a second.
MEAN_S = 1.0
# Below this, plugs have been seen to show nothing at all.
LOW_W = 5.0
PHASES = ("a_act_power", "b_act_power", "c_act_power")
MEASURES = ("apower", "act_power", "total_act_power", "power", *PHASES)
# switch:0, pm1:0, em:0, em1:0, cover:0, light:0, rgbw:0, cct:0, ...
COMPONENT = re.compile(r"[a-z]\w*:\d+")

COMMANDS = ("Status 8", "Status 10")
POWER = re.compile(rb'"Power"\s*:\s*\[?\s*"?\s*-?\d+(?:\.(\d+))?')


class HttpPlug(ABC):
    """The base of both kinds: one response holds the power of all channels. Subclasses request it and read it.

    `address` is HOST, HOST:PORT or http://HOST; the connection stays open from reading to reading.
    """

    sensor = ""
    averaging: Averaging | None = None

    def __init__(
        self,
        address: str = "",
        channel: str = "",
        user: str = "admin",
        password_file: str = "",
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._who = f"{self.sensor} at {address!r}"
        self.address = address
        self.user = user
        self.password_file = password_file
        self._channel = channel
        self._clock = clock
        self._client: DeviceClient | None = None

    def describe(self) -> Description:
        """Return what the plug is."""
        with as_unavailable():
            response = self._fetched()
            channels = self._chosen(response)
        resolution_w, warnings = self._limits(response, channels)
        if len(channels) > 1:
            warnings.insert(0, f"{len(channels)} channels are added up ({', '.join(channels)}): set channel to measure one")
        return Description(
            id=f"{self.sensor}:{self.address}{f'/{self._channel}' if self._channel else ''}",
            scope="wall-ac",
            excludes=(),
            kind="power",
            period_ms=PERIOD_MS,
            resolution_w=resolution_w,
            gain_u_ratio=GAIN_U_RATIO,
            offset_u_w=OFFSET_U_W,
            warnings=tuple(warnings),
            averaging=self.averaging,
        )

    def read(self) -> Reading:
        """Return the power that the plug shows."""
        begin = self._clock()
        channels = self._chosen(self._fetched())
        rails = tuple(Rail(name, power_w) for name, power_w in channels.items())
        return Reading(taken_ns=(begin + self._clock()) // 2, power_w=sum(channels.values()), rails=rails)

    def close(self) -> None:
        """Close the connection; may be called twice."""
        if self._client is not None:
            self._client.close()

    def get(self, path: str) -> bytes:
        """Return what the meter answers to GET `path`.

        Raises:
            AbsentError: no address was set.
            TransientError: it does not answer, or not in time.
            UnavailableError: it refuses, or requires a password that was not given.
            ConfigError: the address or the password file cannot be used.
        """
        if self._client is None:
            if not self.address:
                raise AbsentError(f'no {self.sensor} is known: set address = "192.0.2.7" in [sensors.{self.sensor}]')
            self._client = DeviceClient(self._who, self.address, self.user, self._password, TIMEOUT_S)
        status, body = self._client.get(path)
        if status == http.client.OK:
            return body
        if status >= http.client.INTERNAL_SERVER_ERROR or status == http.client.TOO_MANY_REQUESTS:
            raise TransientError(f"{self._who} answers {status}: it is busy")
        # Not the query: it may hold a password.
        raise UnavailableError(f"{self._who} answers {status} to {path.partition('?')[0]}: check that it is a device of this kind")

    def _password(self) -> str:
        if not self.password_file:
            raise UnavailableError(f"{self._who} asks for a password: set password_file in [sensors.{self.sensor}]")
        return password_from(self.password_file, self._who)

    def _chosen(self, response: bytes) -> dict[str, float]:
        channels = self._channels(response)
        if self._channel and self._channel not in channels:
            raise ConfigError(f"[sensors.{self.sensor}] channel = {self._channel!r}: this device has {', '.join(channels)}")
        selected = {name: power_w for name, power_w in channels.items() if self._channel in {"", name}}
        valid = {name: power_w for name, power_w in selected.items() if power_w is not None}
        if not valid or len(valid) < len(selected):
            raise TransientError(
                f"{self.sensor} gives no valid power for {', '.join(selected.keys() - valid.keys()) or 'any channel'}: read it again"
            )
        return valid

    @abstractmethod
    def _fetched(self) -> bytes:
        """Return the response that holds the power of all channels."""

    @abstractmethod
    def _channels(self, response: bytes) -> dict[str, float | None]:
        """Return the power of each channel, W; None where it is not valid."""

    @abstractmethod
    def _limits(self, response: bytes, channels: Mapping[str, float]) -> tuple[float, list[str]]:
        """Return the resolution, W, and warnings."""


class Shelly(HttpPlug):
    """A Shelly plug or relay that measures power, of any generation.

    The power is a mean of about a second. Some models show nothing below a few watts: try yours with a known load before you trust it on a
    small board.

    Protocol: Gen2 and later answer `GET /rpc/Shelly.GetStatus` with one object for each component (`switch:0`, `pm1:0`, `em1:0`, `em:0`,
    `cover:0`, `light:0`): `apower` or `act_power` in W. Gen1 answers `GET /status` with `meters` and `emeters`: `power` in W.
    Source: Shelly Gen2 Device API, Switch, PM1, EM, EM1, Cover; Shelly Gen1 API, /status. Accuracy as the maker states it: 1% class.
    Tested with: recorded answers of both generations, and a server that plays them; not yet on a device.
    """

    sensor = "shelly"
    averaging = averaging_by("published", window_s=MEAN_S, update_interval_s=MEAN_S)
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
        channels = dict(shelly_channels(json_object(response, "the Shelly")))
        if not channels:
            raise UnavailableError("this Shelly shows no power (no apower, act_power or meters): it is a model that does not measure")
        return channels

    def _limits(self, response: bytes, channels: Mapping[str, float]) -> tuple[float, list[str]]:
        del response
        warning = f"plugs may be wrong below {LOW_W:.0f} W: check this one with a known load"
        return SHELLY_RESOLUTION_W, [warning] if abs(sum(channels.values())) < LOW_W else []


class Tasmota(HttpPlug):
    """A plug with Tasmota firmware that measures power.

    Whole watts by default: `WattRes 1` on the plug's console gives a decimal. The chips are calibrated by the user, or not at all:
    `PowerSet`.

    Protocol: `GET /cm?cmnd=Status%208` answers `StatusSNS.ENERGY.Power` in W (`Status%2010` in the same form; firmware before 6
    `StatusPWR`); with several channels or phases a list. MQTT telemetry comes every 300 s unless it was changed, so the plug is polled.
    Source: Tasmota documentation, Commands (Status, WattRes, TelePeriod) and Power Monitoring Calibration.
    Tested with: recorded answers, and a server that plays them; not yet on a device.
    """

    sensor = "tasmota"
    # The chips (HLW8012, BL0937) turn power into pulses and miss none of it. Source: their data sheets.
    averaging = averaging_by("published", seen_ratio=1.0)
    _command: str | None = None

    def _fetched(self) -> bytes:
        if self._command is not None:
            return self.get(self._path(self._command))
        for command in COMMANDS:
            answer = self.get(self._path(command))
            if b'"ENERGY"' in answer or b'"StatusPWR"' in answer:
                self._command = command
                break
        return answer

    def _path(self, command: str) -> str:
        # Tasmota takes the password in the query; only its newest versions know HTTP authentication.
        credentials = f"user={quote(self.user)}&password={quote(self._password())}&" if self.password_file else ""
        return f"/cm?{credentials}cmnd={quote(command)}"

    def _channels(self, response: bytes) -> dict[str, float | None]:
        document = json_object(response, "the Tasmota plug")
        if "WARNING" in document:
            raise UnavailableError(f"the Tasmota plug refuses ({document['WARNING']}): set user and password_file in [sensors.tasmota]")
        energy = _energy(document)
        if energy is None:
            raise UnavailableError("this Tasmota device shows no ENERGY.Power: it does not measure power, or answers another command")
        power = energy["Power"]
        return {str(index): json_watts(value) for index, value in enumerate(power if isinstance(power, list) else [power], start=1)}

    def _limits(self, response: bytes, channels: Mapping[str, float]) -> tuple[float, list[str]]:
        del channels
        decimals = POWER.search(response)
        resolution_w = 10.0 ** -len((decimals.group(1) if decimals else None) or b"")
        return resolution_w, ["it shows whole watts: `WattRes 1` on its console gives a decimal"] if resolution_w >= 1 else []


def shelly_channels(document: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield each measuring channel of a status with its power, W; None where the device calls its own reading invalid.

    `document` is a status of the whole device or of one component, of either generation.

    Raises:
        UnavailableError: it is an error that the device reports.
    """
    if "code" in document and "message" in document:
        raise UnavailableError(f"the Shelly answers {document['code']}: {document['message']}")
    # Where a Gen1 device has both, the second are its relays' estimates of the same load.
    for key in ("emeters", "meters"):
        if isinstance(document.get(key), list) and document[key]:
            for index, meter in enumerate(document[key]):
                yield f"{key[:-1]}:{index}", _power(meter) if isinstance(meter, dict) else None
            return
    if any(key in document for key in MEASURES):
        yield f"channel:{document.get('id', 0)}", _power(document)
    for key, part in document.items():
        if isinstance(part, dict) and COMPONENT.fullmatch(key) and any(name in part for name in MEASURES):
            yield key, _power(part)


def _power(part: Mapping[str, Any]) -> float | None:
    """Return the power of a component; that of three phases is their total."""
    if part.get("is_valid") is False:
        return None
    for name in ("total_act_power", "apower", "act_power", "power"):
        if name in part:
            return json_watts(part[name])
    phases = [json_watts(part.get(name)) for name in PHASES]
    return None if None in phases else sum(power_w for power_w in phases if power_w is not None)


def _energy(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    sensors = document.get("StatusSNS", document)
    energy = (sensors.get("ENERGY") or sensors.get("Energy")) if isinstance(sensors, dict) else None
    energy = energy or document.get("StatusPWR")
    return energy if isinstance(energy, dict) and "Power" in energy else None
