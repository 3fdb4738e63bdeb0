"""One GET to a switch on the local network, with HTTP Digest or Basic authentication where it asks for it; each on a new connection."""

import http.client
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edgemeter.agent.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power.http_meter import authorisation, challenge, decoded
from edgemeter.provisioning.rescue.wiring import Wiring

TIMEOUT_S = 5.0
LARGEST_BYTES = 1 << 20


class HttpSwitch:
    """The switch of a wiring, over HTTP."""

    def __init__(self, wired: Wiring) -> None:
        self._wired = wired
        try:
            parts = urlsplit(f"//{wired.place}")
            host, self._port = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host:
            message = f"switch {wired.text!r} of {wired.device!r}: give a HOST or HOST:PORT"
            raise ConfigError(message)
        self._host = host

    @property
    def who(self) -> str:
        """What it is called in messages."""
        return f"switch {self._wired.text!r} of {self._wired.device!r}"

    @property
    def has_password(self) -> bool:
        """Whether a password was set for it."""
        return self._wired.entry.password_file is not None

    @property
    def user(self) -> str:
        """The name that goes with the password."""
        return self._wired.entry.user

    def password(self) -> str:
        """Return the password from its file.

        Raises:
            ConfigError: there is none, or it cannot be read.
        """
        path = self._wired.entry.password_file
        if path is None:
            message = (
                f"{self.who} asks for a password: give it a [switch.NAME] with address and password_file, and write switch = 'switch:NAME'"
            )
            raise ConfigError(message)
        try:
            return Path(path).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            message = f"cannot read the password_file {path!r} of {self.who}: {error}"
            raise ConfigError(message) from error

    def get(self, path: str) -> dict[str, Any]:
        """Return what it answers to GET `path`, a JSON object.

        Raises:
            TransientError: it does not answer, or not with a whole object.
            UnavailableError: it refuses, or is another kind of device.
            ConfigError: it asks for a password that was not given.
        """
        status, headers, body = self._ask(path, {})
        if status == http.client.UNAUTHORIZED:
            asked = challenge(headers.get("www-authenticate", ""), self.who)
            header = authorisation(asked, "GET", path, self.user, self.password(), 1)
            status, _, body = self._ask(path, {"Authorization": header})
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            message = f"{self.who} refuses the password of {self.user!r}: correct user and password_file"
            raise UnavailableError(message)
        if status != http.client.OK:
            # Not the query: it may hold a password.
            said = body[:120].decode(errors="replace").strip()
            message = f"{self.who} answers {status} to {path.partition('?')[0]} ({said!r}): is it such a device, with this channel?"
            raise UnavailableError(message)
        return decoded(body, self.who)

    def _ask(self, path: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path, headers={"Accept": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read(LARGEST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            message = f"{self.who} does not answer ({str(error) or type(error).__name__}): is it plugged in, and in reach?"
            raise TransientError(message) from error
        finally:
            connection.close()
