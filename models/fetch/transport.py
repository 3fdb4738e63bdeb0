"""HTTP for downloads: http and https only, never from https down to http, proxies, a timeout, and errors in our words."""

import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

from edgemeter.agent.errors import ConfigError, TransientError, UnavailableError
from edgemeter.models.catalogue_entry import is_address

TIMEOUT_S = 30.0
# Worth another try at the same address: the server is busy, restarting, or behind a gateway that is.
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Transport:
    """How to reach servers. `proxy` replaces those of the environment (http_proxy, https_proxy); no_proxy is heeded in any case.

    `pause` waits that many seconds before another try.
    """

    proxy: str | None = None
    timeout_s: float = TIMEOUT_S
    pause: Callable[[float], None] = time.sleep

    def open(self, address: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """Return the answer to a GET: status 200, 206 or 416, its body unread.

        Raises:
            TransientError: no connection, a time-out, or a busy server.
            UnavailableError: the server refuses, or sends us where we do not go.
        """
        request = urllib.request.Request(address, headers={"User-Agent": "edgemeter", "Accept-Encoding": "identity", **headers})  # noqa: S310 - checked by the opener
        try:
            answer: http.client.HTTPResponse = self._opener().open(request, timeout=self.timeout_s)
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and "Range" in headers:
                return error  # type: ignore[return-value] # an HTTPError is the answer that it stands for
            with error:
                raise _refused(address, error) from error
        except (OSError, http.client.HTTPException) as error:
            raise lost(address, error) from error
        return answer

    def _opener(self) -> urllib.request.OpenerDirector:
        # Not build_opener: it would also open file:, ftp: and data: addresses.
        opener = urllib.request.OpenerDirector()
        proxies = urllib.request.ProxyHandler(None if self.proxy is None else dict.fromkeys(("http", "https"), self._proxy()))
        for handler in (
            proxies,
            urllib.request.UnknownHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=ssl.create_default_context()),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirects(),
        ):
            opener.add_handler(handler)
        return opener

    def _proxy(self) -> str:
        # Unlike a model's address, a proxy's may hold user and password.
        host = urlsplit(self.proxy or "").netloc.rpartition("@")[2]
        if self.proxy is None or not is_address(f"{urlsplit(self.proxy).scheme}://{host}"):
            message = f"proxy {shown(self.proxy or '')!r} is no http or https address: give http://HOST:PORT"
            raise ConfigError(message)
        return self.proxy


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to http and https; what began with https stays with it."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        was, becomes = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if becomes not in ("http", "https") or (was == "https" and becomes == "http"):
            message = (
                f"{shown(req.full_url)} sends us on to {shown(newurl)}: not followed, only https to https and http to http or https are"
            )
            raise UnavailableError(message)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def lost(address: str, error: Exception) -> TransientError | UnavailableError:
    """Return our error for a connection that could not be made or broke."""
    reason: Any = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return UnavailableError(
            f"{shown(address)}: its certificate is not trusted ({reason.verify_message}): check the clock and the proxy"
        )
    text = "no answer in time" if isinstance(reason, TimeoutError) else " ".join(str(reason).split()) or type(reason).__name__
    return TransientError(f"{shown(address)}: {text}")


def shown(address: str) -> str:
    """Return the address without user, password and query, for messages."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that cannot be read"
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, host + port, parts.path, "", ""))


def _refused(address: str, error: urllib.error.HTTPError) -> TransientError | UnavailableError:
    message = f"{shown(address)}: the server says {error.code} {error.reason}"
    return TransientError(message) if error.code in _BUSY else UnavailableError(message)
