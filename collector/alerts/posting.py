"""POST of JSON over HTTP: only the receiver's own 2xx is a delivery, and what it redirects goes to the same host or nowhere."""

import http.client
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError

POST_TIMEOUT_S = 10.0
_RESPONSE_BYTES = 300

# Client errors are permanent, except these: too early, too slow, too many requests.
_LATER = frozenset({408, 425, 429})


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Repeats a POST at 307 and 308 at the same host and port, or by https there; every other redirect is an answer like any other."""

    max_redirections = 3

    def redirect_request(self, *arguments: Any, **_: Any) -> urllib.request.Request | None:
        """Return the repeated request, None where it may not be repeated; the arguments are urllib's."""
        req, _fp, code, _message, _headers, newurl = arguments
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        is_same = (after.scheme, after.netloc) == (before.scheme, before.netloc)
        is_safer = (before.scheme, after.scheme) == ("http", "https") and after.hostname == before.hostname
        if code not in (307, 308) or not (is_same or is_safer):
            return None
        return urllib.request.Request(newurl, req.data, {**req.headers}, method="POST")  # noqa: S310 - as the address before

    # Python 3.10 has none for it.
    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302


def post_json(channel: str, url: str, body: Any, token: str | None = None) -> None:
    """Send `body` as JSON to `url`; an address is a secret, so messages name only its host.

    Raises:
        ConfigError: it is not an HTTP address.
        UnavailableError: the server refuses it.
        TransientError: the delivery failed; retry later.
    """
    host = _host(channel, url)
    headers = {"Content-Type": "application/json", "User-Agent": "edgemeter"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310 - checked by _host
    try:
        # Its status is the answer, whatever follows and however slowly.
        urllib.request.build_opener(_SameHost).open(request, timeout=POST_TIMEOUT_S).close()
    except urllib.error.HTTPError as error:
        with error:
            reply = error.read(_RESPONSE_BYTES).decode("utf-8", "replace") if error.code >= 400 else "a redirect is no delivery"
        raise (TransientError if error.code >= 500 or error.code < 400 or error.code in _LATER else UnavailableError)(
            f"channel {channel!r}: {host} responds {error.code} {error.reason}: {reply}"
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise TransientError(f"channel {channel!r}: {host} cannot be reached ({reason})") from error


def _host(channel: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https"):
        raise ConfigError(f"channel {channel!r}: its url is not an http:// or https:// address: correct it")
    return host
