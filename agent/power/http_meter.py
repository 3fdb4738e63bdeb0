"""One GET to a meter on the local network: its answer as JSON, with HTTP Digest or Basic authentication where it asks for it.

Python's own library knows Digest with SHA-256, which Shelly uses, from version 3.14 only; so it is here.
Source: RFC 7616, sections 3.3 and 3.4; its example in section 3.9.1 is a test.
"""

import base64
import hashlib
import http.client
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edgemeter.agent.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power import AbsentError

TIMEOUT_S = 3.0
LARGEST_BYTES = 1 << 20
# More than the meters of any house carry (three phases of 400 A): what shows more is garbled.
HIGHEST_W = 1e6
NUMBER = re.compile(r"\s*[-+]?\d+(\.\d+)?([eE][-+]?\d+)?\s*", re.ASCII)
HASHES = {"md5": hashlib.md5, "sha-256": hashlib.sha256}
PARAMETER = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))')


@dataclass(slots=True)
class HttpMeter:
    """A meter at `address` (HOST, HOST:PORT or http://HOST); the connection stays open from reading to reading."""

    sensor: str
    address: str
    user: str = "admin"
    password_file: str = ""
    _connection: http.client.HTTPConnection | None = field(default=None, init=False)
    _authorisation: dict[str, str] = field(default_factory=dict, init=False)
    _count: int = field(default=0, init=False)

    def get(self, path: str) -> bytes:
        """Return what the meter answers to GET `path`.

        Raises:
            AbsentError: no address was set.
            TransientError: it does not answer, or not in time.
            UnavailableError: it refuses, or asks for a password that was not given.
            ConfigError: the address or the password file cannot be used.
        """
        status, headers, body = self._ask(path)
        if status == http.client.UNAUTHORIZED:
            self._authorisation = self._challenge(headers)
            self._count = 0
            status, headers, body = self._ask(path)
        if status == http.client.OK:
            return body
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            message = f"{self.sensor} at {self.address!r} refuses the password of {self.user!r}: correct user and password_file"
            raise UnavailableError(message)
        if status >= http.client.INTERNAL_SERVER_ERROR or status == http.client.TOO_MANY_REQUESTS:
            message = f"{self.sensor} at {self.address!r} answers {status}: it is busy"
            raise TransientError(message)
        # Not the query: it may hold a password.
        message = f"{self.sensor} at {self.address!r} answers {status} to {path.partition('?')[0]}: is it a device of this kind?"
        raise UnavailableError(message)

    def close(self) -> None:
        """Close the connection; may be called twice."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def password(self) -> str:
        """Return the password from its file.

        Raises:
            ConfigError: the file cannot be read.
        """
        try:
            return Path(self.password_file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            message = f"cannot read [sensors.{self.sensor}] password_file = {self.password_file!r}: {error}"
            raise ConfigError(message) from error

    def _ask(self, path: str) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"Accept": "application/json"}
        if self._authorisation:
            self._count += 1
            headers["Authorization"] = authorisation(self._authorisation, "GET", path, self.user, self.password(), self._count)
        connection = self._open()
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            body = answer.read(LARGEST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            # A connection that failed half-way holds the rest of an answer: it is of no more use.
            self.close()
            why = str(error) or type(error).__name__
            message = f"{self.sensor} at {self.address!r} does not answer ({why}): is it switched on, and in reach?"
            raise TransientError(message) from error
        if len(body) > LARGEST_BYTES:
            self.close()
            message = f"{self.sensor} at {self.address!r} answers more than {LARGEST_BYTES >> 20} MiB: is it a device of this kind?"
            raise UnavailableError(message)
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body

    def _open(self) -> http.client.HTTPConnection:
        if self._connection is None:
            if not self.address:
                message = f'no {self.sensor} is known: set address = "192.0.2.7" in [sensors.{self.sensor}]'
                raise AbsentError(message)
            try:
                parts = urlsplit(self.address if "//" in self.address else f"//{self.address}")
                host, port = parts.hostname, parts.port
            except ValueError:
                host, port = None, None
            if host is None or parts.scheme not in ("", "http"):
                message = f"[sensors.{self.sensor}] address = {self.address!r}: give HOST, HOST:PORT or http://HOST"
                raise ConfigError(message)
            self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        return self._connection

    def _challenge(self, headers: Mapping[str, str]) -> dict[str, str]:
        if not self.password_file:
            message = f"{self.sensor} at {self.address!r} asks for a password: set password_file in [sensors.{self.sensor}]"
            raise UnavailableError(message)
        return challenge(headers.get("www-authenticate", ""), f"{self.sensor} at {self.address!r}")


def challenge(header: str, who: str) -> dict[str, str]:
    """Return the parameters of a WWW-Authenticate header, its scheme under `scheme`; Digest goes before Basic.

    Raises:
        UnavailableError: it asks for something else.
    """
    for scheme in ("digest", "basic"):
        at = header.lower().find(scheme)
        if at < 0:
            continue
        found = {name.lower(): quoted or plain for name, quoted, plain in PARAMETER.findall(header[at:])}
        found["scheme"] = scheme
        if scheme == "digest" and found.get("algorithm", "MD5").lower() not in HASHES:
            message = f"{who} asks for Digest with {found['algorithm']!r}, which is not known here: choose SHA-256 or MD5 on the device"
            raise UnavailableError(message)
        return found
    message = f"{who} asks for an authentication that is not known here ({header[:60]!r})"
    raise UnavailableError(message)


def authorisation(
    asked: Mapping[str, str], method: str, path: str, user: str, password: str, count: int, client_nonce: str | None = None
) -> str:
    """Return the Authorization header that answers a challenge (`challenge`)."""
    if asked["scheme"] == "basic":
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    algorithm = asked.get("algorithm", "MD5")
    realm, nonce = asked.get("realm", ""), asked.get("nonce", "")
    own = client_nonce or secrets.token_hex(16)

    def digest(text: str) -> str:
        return HASHES[algorithm.lower()](text.encode()).hexdigest()

    secret, request = digest(f"{user}:{realm}:{password}"), digest(f"{method}:{path}")
    parts = {"username": user, "realm": realm, "nonce": nonce, "uri": path}
    if "auth" in re.split(r"[\s,]+", asked.get("qop", "")):
        parts["response"] = digest(f"{secret}:{nonce}:{count:08x}:{own}:auth:{request}")
        tail = f', qop=auth, nc={count:08x}, cnonce="{own}"'
    else:
        parts["response"] = digest(f"{secret}:{nonce}:{request}")
        tail = ""
    opaque = f', opaque="{asked["opaque"]}"' if "opaque" in asked else ""
    return "Digest " + ", ".join(f'{name}="{value}"' for name, value in parts.items()) + f", algorithm={algorithm}" + tail + opaque


def decoded(content: bytes, who: str, is_meant: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
    """Return the first JSON object in an answer that is meant, else the first.

    A topic, a command or HTTP headers may stand before it, a prompt or later answers behind it.

    Raises:
        TransientError: it is cut or garbled.
    """
    first, at = None, 0
    try:
        text = content.decode()
        at = max(text.find("{"), 0)
        while at >= 0:
            document, end = json.JSONDecoder(parse_constant=_refuse).raw_decode(text, at)
            # What is closed behind it was opened before it: then its beginning is cut off, and this is only a part.
            if not isinstance(document, dict) or text[end:].lstrip()[:1] in {"}", "]", ","}:
                message = "no whole JSON object"
                raise ValueError(message)  # noqa: TRY301 - a value like any other that is garbled
            if is_meant(document):
                return document
            first, at = document if first is None else first, text.find("{", end)
    except (ValueError, RecursionError) as error:
        message = f"{who} gave an answer that is cut or garbled ({error}): {content[:60].decode(errors='replace')!r}: read it again"
        raise TransientError(message) from error
    return first or {}


def _refuse(constant: str) -> float:
    message = f"{constant} is no JSON"
    raise ValueError(message)


def number(value: Any) -> float | None:
    """Return a finite number that JSON holds as one or, as some firmware does, as a string; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    # float() takes more for a number than any meter writes: 1_000, infinity, other scripts' digits.
    if isinstance(value, str) and not NUMBER.fullmatch(value):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if abs(found) < float("inf") else None


def watts(value: Any) -> float | None:
    """Return a number of watts that a meter can show; None of anything else."""
    found = number(value)
    return None if found is None or abs(found) > HIGHEST_W else found
