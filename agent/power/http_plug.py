"""The common part of plugs and relays that measure power and answer over HTTP on the local network.

A plug sees everything that it feeds, including the loss in the power supply. Several measuring
channels are added up unless `channel` names one. The energy counters are not used, because their
steps (0.21 Wh, which is 766 J, or 1 Wh) are too coarse.
"""

import base64
import hashlib
import http.client
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.http_client import FAILURES, HttpConnection
from edgemeter.agent.base.tls import password_from
from edgemeter.agent.power import AbsentError, Description, Rail, Reading
from edgemeter.agent.power.values import as_unavailable, json_number

TIMEOUT_S = 3.0
PERIOD_MS = 1000.0
# More than three phases of 400 A: a larger reading is garbled.
HIGHEST_W = 1e6
# Limits of 2% and 0.1 W, taken as rectangular: standard uncertainties. Source: the makers' classes,
# 1 to 2%, and that of Tasmota's chips (HLW8012, BL0937, CSE7766) once calibrated.
GAIN_U_RATIO, OFFSET_U_W = 0.0115, 0.058
LARGEST_RESPONSE_BYTES = 1 << 20
_HASHES = {"md5": hashlib.md5, "sha-256": hashlib.sha256}
_DEVICE = "http://device"


class Digest(urllib.request.AbstractDigestAuthHandler):
    """Python's own, with SHA-256, which Shelly uses: that knows it from version 3.14 on only."""

    def get_algorithm_impls(self, algorithm: str) -> Any:
        """Return the two functions of RFC 7616, 3.3."""

        def digest(text: str) -> str:
            return _HASHES[algorithm.lower()](text.encode()).hexdigest()

        return digest, lambda secret, text: digest(f"{secret}:{text}")


def login(challenge: str, who: str, user: str, password: Callable[[], str]) -> Callable[[str], str]:
    """Return a function that makes the header Authorization for GET of a path.

    The header is as WWW-Authenticate demands; Digest is preferred to Basic.

    Raises:
        UnavailableError: it asks for something else.
    """
    _, is_digest, text = challenge.replace("digest ", "Digest ").partition("Digest ")
    if is_digest:
        items = [item for item in urllib.request.parse_http_list(text) if "=" in item]
        challenged = {"realm": "", "nonce": ""} | {
            name.lower(): value for name, value in urllib.request.parse_keqv_list(items).items()
        }
        if challenged.get("algorithm", "MD5").lower() not in _HASHES:
            raise UnavailableError(
                f"{who} asks for Digest with {challenged['algorithm']!r}, which is not known "
                "here: choose SHA-256 or MD5 on the device"
            )
        if "qop" in challenged:
            challenged["qop"] = challenged["qop"].replace(" ", "")
        passwords = urllib.request.HTTPPasswordMgr()
        passwords.add_password(challenged["realm"], _DEVICE, user, password())
        digest = Digest(passwords)

        def authorised(path: str) -> str:
            request = urllib.request.Request(_DEVICE + path)  # noqa: S310 - not opened
            return f"Digest {digest.get_authorization(request, challenged)}"

        return authorised
    if challenge.lower().startswith("basic"):
        token = base64.b64encode(f"{user}:{password()}".encode()).decode()
        return lambda _: f"Basic {token}"
    raise UnavailableError(
        f"{who} asks for an authentication that is not known here ({challenge[:60]!r})"
    )


def json_watts(value: Any) -> float | None:
    """Return a number of watts that a meter can show, else None."""
    power_w = json_number(value)
    return None if power_w is None or abs(power_w) > HIGHEST_W else power_w


class HttpPlug(ABC):
    """One response holds the power of all channels; subclasses request it and read it.

    `address` is HOST, HOST:PORT or http://HOST; the connection stays open from reading to reading.
    """

    sensor = ""
    delay_ms: float | None = None

    def __init__(
        self,
        address: str = "",
        channel: str = "",
        user: str = "admin",
        password_file: str = "",
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._who = f"{self.sensor} at {address!r}"
        self.address, self.user, self.password_file = address, user, password_file
        self._channel, self._clock = channel, clock
        self._client: HttpConnection | None = None
        self._login: Callable[[str], str] | None = None

    def describe(self) -> Description:
        with as_unavailable():
            response = self._fetched()
            channels = self._chosen(response)
        resolution_w, warnings = self._limits(response, sum(channels.values()))
        if len(channels) > 1:
            warnings.insert(
                0,
                f"{len(channels)} channels are added up ({', '.join(channels)}): set "
                "channel to measure one",
            )
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
            delay_ms=self.delay_ms,
        )

    def read(self) -> Reading:
        begin = self._clock()
        channels = self._chosen(self._fetched())
        return Reading(
            taken_ns=(begin + self._clock()) // 2,
            power_w=sum(channels.values()),
            rails=tuple(Rail(name, power_w) for name, power_w in channels.items()),
        )

    def close(self) -> None:
        """Close the connection; may be called twice."""
        if self._client is not None:
            self._client.close()

    def get(self, path: str) -> bytes:
        """Return the meter's answer to GET `path`.

        Raises:
            AbsentError: no address was set.
            TransientError: it does not answer, or not in time.
            UnavailableError: it refuses, or requires a password that was not given.
            ConfigError: the address or the password file cannot be used.
        """
        if self._client is None:
            if not self.address:
                raise AbsentError(
                    f'no {self.sensor} is configured: set address = "192.0.2.7" in '
                    f"[sensors.{self.sensor}]"
                )
            url = self.address if "//" in self.address else f"http://{self.address}"
            if not url.startswith("http://"):
                raise ConfigError(f"{self._who}: give HOST, HOST:PORT or http://HOST")
            self._client = HttpConnection(url, TIMEOUT_S, {"Accept": "application/json"})
        status, challenge, body = self._ask(self._client, path)
        if status == http.client.UNAUTHORIZED:
            self._login = login(challenge, self._who, self.user, self.password)
            status, _, body = self._ask(self._client, path)
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise UnavailableError(
                f"{self._who} refuses the password of {self.user!r}: correct user and password_file"
            )
        if status == http.client.OK:
            return body
        if status >= http.client.INTERNAL_SERVER_ERROR or status == http.client.TOO_MANY_REQUESTS:
            raise TransientError(f"{self._who} answers {status}: it is busy")
        # Without the query, which may hold a password.
        raise UnavailableError(
            f"{self._who} answers {status} to {path.partition('?')[0]}: check that it is a "
            "device of this kind"
        )

    def _ask(self, client: HttpConnection, path: str) -> tuple[int, str, bytes]:
        try:
            answer = client.request(
                "GET", path, headers={"Authorization": self._login(path)} if self._login else {}
            )
            body = answer.read(LARGEST_RESPONSE_BYTES + 1)
        except FAILURES as error:
            why = str(error) or type(error).__name__
            raise TransientError(
                f"{self._who} does not answer ({why}): check that it is switched on and reachable"
            ) from error
        if len(body) > LARGEST_RESPONSE_BYTES:
            raise UnavailableError(
                f"{self._who} answers more than {LARGEST_RESPONSE_BYTES >> 20} MiB: check that "
                "it is the right device"
            )
        return answer.status, answer.fields.get("www-authenticate", ""), body

    def password(self) -> str:
        """Return the password in the user's file.

        Raises:
            UnavailableError: there is no file.
            ConfigError: the file cannot be read.
        """
        if not self.password_file:
            raise UnavailableError(
                f"{self._who} asks for a password: set password_file in [sensors.{self.sensor}]"
            )
        return password_from(self.password_file, self._who)

    def _chosen(self, response: bytes) -> dict[str, float]:
        channels = self._channels(response)
        if self._channel and self._channel not in channels:
            raise ConfigError(
                f"[sensors.{self.sensor}] channel = {self._channel!r}: this device has "
                f"{', '.join(channels)}"
            )
        selected = {
            name: power_w for name, power_w in channels.items() if self._channel in {"", name}
        }
        valid = {name: power_w for name, power_w in selected.items() if power_w is not None}
        if not valid or len(valid) < len(selected):
            names = ", ".join(selected.keys() - valid.keys()) or "any channel"
            raise TransientError(f"{self.sensor} gives no valid power for {names}: read it again")
        return valid

    @abstractmethod
    def _fetched(self) -> bytes:
        """Return the response that holds the power of all channels."""

    @abstractmethod
    def _channels(self, response: bytes) -> dict[str, float | None]:
        """Return the power of each channel, W; None if it is invalid."""

    @abstractmethod
    def _limits(self, response: bytes, power_w: float) -> tuple[float, list[str]]:
        """Return the resolution, W, and warnings, if all channels together show `power_w`."""
