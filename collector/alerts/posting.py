"""POST of JSON over HTTP: only the receiver's own 2xx is a delivery, and what it redirects goes to the same host or nowhere."""

import json
from typing import Any
from urllib.parse import urlsplit

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError, one_line
from edgemeter.agent.base.http_client import FAILURES, open_url

POST_TIMEOUT_S = 10.0
_RESPONSE_BYTES = 300

# Client errors are permanent, except these: too early, too slow, too many requests.
_LATER = frozenset({408, 425, 429})


def may_repeat(status: int, before: str, after: str) -> bool:
    """Return whether a POST goes to where it was redirected: at 307 and 308, and at the same host and port, or by https there."""
    was, becomes = urlsplit(before), urlsplit(after)
    is_same = (becomes.scheme, becomes.netloc) == (was.scheme, was.netloc)
    is_safer = (was.scheme, becomes.scheme) == ("http", "https") and becomes.hostname == was.hostname
    return status in (307, 308) and (is_same or is_safer)


def post_json(channel: str, url: str, body: Any, token: str | None = None) -> None:
    """Send `body` as JSON to `url`; an address is a secret, so messages name only its host.

    Raises:
        ConfigError: it is not an HTTP address.
        UnavailableError: the server refuses it.
        TransientError: the delivery failed; retry later.
    """
    host = _host(channel, url)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        with open_url(url, may_repeat, POST_TIMEOUT_S, json.dumps(body).encode(), headers) as answer:
            status = answer.status
            # Its status is the answer, whatever follows and however slowly.
            if status < 300:
                return
            reply = answer.read(_RESPONSE_BYTES).decode("utf-8", "replace") if status >= 400 else "a redirect is no delivery"
    except FAILURES as error:
        raise TransientError(f"channel {channel!r}: {host} cannot be reached ({one_line(error)})") from error
    raise (TransientError if status >= 500 or status < 400 or status in _LATER else UnavailableError)(
        f"channel {channel!r}: {host} responds {status} {answer.reason}: {reply}"
    )


def _host(channel: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https"):
        raise ConfigError(f"channel {channel!r}: its url is not an http:// or https:// address: correct it")
    return host
