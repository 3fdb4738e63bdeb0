"""HTTP to devices on the local network: Digest and Basic authentication, and JSON answers checked as they are read.

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
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError

LARGEST_RESPONSE_BYTES = 1 << 20
NUMBER = re.compile(r"\s*[-+]?\d+(\.\d+)?([eE][-+]?\d+)?\s*", re.ASCII)
HASHES = {"md5": hashlib.md5, "sha-256": hashlib.sha256}
PARAMETER = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))')


class DeviceClient:
    """GET requests to the device `who` at `address` (HOST, HOST:PORT or http://HOST); the connection stays open until `close`.

    `password` is called when the device requires one, and may raise.
    """

    def __init__(self, who: str, address: str, user: str, password: Callable[[], str], timeout_s: float) -> None:
        self._who = who
        self._user = user
        self._password = password
        self._authorisation: dict[str, str] = {}
        self._count = 0
        try:
            parts = urlsplit(address if "//" in address else f"//{address}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if host is None or parts.scheme not in ("", "http"):
            raise ConfigError(f"{who}: {address!r} is not an address: give HOST, HOST:PORT or http://HOST")
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)

    def get(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of the response to GET `path`, after authentication if the device requires it.

        Raises:
            TransientError: it does not answer, or not in time.
            UnavailableError: it rejects the password, or answers more than a device can.
        """
        status, headers, body = self._ask(path)
        if status == http.client.UNAUTHORIZED:
            self._authorisation, self._count = challenge(headers.get("www-authenticate", ""), self._who), 0
            status, _, body = self._ask(path)
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise UnavailableError(f"{self._who} refuses the password of {self._user!r}: correct user and password_file")
        return status, body

    def close(self) -> None:
        """Close the connection; may be called twice, and the next request opens it again."""
        self._connection.close()

    def _ask(self, path: str) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"Accept": "application/json"}
        if self._authorisation:
            self._count += 1
            headers["Authorization"] = authorisation(self._authorisation, "GET", path, self._user, self._password(), self._count)
        try:
            self._connection.request("GET", path, headers=headers)
            response = self._connection.getresponse()
            body = response.read(LARGEST_RESPONSE_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            # A connection that failed half-way holds the rest of a response: it is of no more use.
            self.close()
            why = str(error) or type(error).__name__
            raise TransientError(f"{self._who} does not answer ({why}): check that it is switched on and reachable") from error
        if len(body) > LARGEST_RESPONSE_BYTES:
            self.close()
            raise UnavailableError(f"{self._who} answers more than {LARGEST_RESPONSE_BYTES >> 20} MiB: check that it is the right device")
        return response.status, {name.lower(): value for name, value in response.getheaders()}, body


def password_from(path: str, who: str, key: str = "password_file") -> str:
    """Return the password of the device `who` in the file at `path`, which the setting `key` names.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the {key} {path!r} of {who}: {error}") from error


def challenge(header: str, who: str) -> dict[str, str]:
    """Return the parameters of a WWW-Authenticate header, its scheme under `scheme`; Digest goes before Basic.

    Raises:
        UnavailableError: it asks for something else.
    """
    for scheme in ("digest", "basic"):
        at = header.lower().find(scheme)
        if at < 0:
            continue
        parameters = {name.lower(): quoted or plain for name, quoted, plain in PARAMETER.findall(header[at:])}
        parameters["scheme"] = scheme
        if scheme == "digest" and parameters.get("algorithm", "MD5").lower() not in HASHES:
            raise UnavailableError(
                f"{who} asks for Digest with {parameters['algorithm']!r}, which is not known here: choose SHA-256 or MD5 on the device"
            )
        return parameters
    raise UnavailableError(f"{who} asks for an authentication that is not known here ({header[:60]!r})")


def authorisation(
    parameters: Mapping[str, str], method: str, path: str, user: str, password: str, count: int, client_nonce: str | None = None
) -> str:
    """Return the Authorization header that answers a challenge (`challenge`)."""
    if parameters["scheme"] == "basic":
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    algorithm = parameters.get("algorithm", "MD5")
    realm, nonce = parameters.get("realm", ""), parameters.get("nonce", "")
    own_nonce = client_nonce or secrets.token_hex(16)

    def digest(text: str) -> str:
        return HASHES[algorithm.lower()](text.encode()).hexdigest()

    secret, request = digest(f"{user}:{realm}:{password}"), digest(f"{method}:{path}")
    parts = {"username": user, "realm": realm, "nonce": nonce, "uri": path}
    if "auth" in re.split(r"[\s,]+", parameters.get("qop", "")):
        parts["response"] = digest(f"{secret}:{nonce}:{count:08x}:{own_nonce}:auth:{request}")
        tail = f', qop=auth, nc={count:08x}, cnonce="{own_nonce}"'
    else:
        parts["response"] = digest(f"{secret}:{nonce}:{request}")
        tail = ""
    opaque = f', opaque="{parameters["opaque"]}"' if "opaque" in parameters else ""
    return "Digest " + ", ".join(f'{name}="{value}"' for name, value in parts.items()) + f", algorithm={algorithm}" + tail + opaque


def json_object(content: bytes, who: str) -> dict[str, Any]:
    """Return the JSON object that an answer is; raises TransientError if it is cut or garbled."""
    try:
        document = json.loads(content.decode(), parse_constant=_refuse)
        if not isinstance(document, dict):
            raise ValueError("no JSON object")  # noqa: TRY004, TRY301 - a value like any other that is garbled
    except (ValueError, RecursionError) as error:
        raise TransientError(
            f"{who} gave an answer that is cut or garbled ({error}): {content[:60].decode(errors='replace')!r}: read it again"
        ) from error
    return document


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def json_number(value: Any) -> float | None:
    """Return a finite number that JSON holds as one or, as some firmware does, as a string; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    # float() takes more for a number than any meter writes: 1_000, infinity, other scripts' digits.
    if isinstance(value, str) and not NUMBER.fullmatch(value):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < float("inf") else None
