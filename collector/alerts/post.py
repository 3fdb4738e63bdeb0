"""One HTTP POST of JSON, with its errors mapped: for webhooks, Alertmanager and ntfy."""

import http.client
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from edgemeter.agent.errors import ConfigError, TransientError, UnavailableError

TIMEOUT_S = 10.0
_ANSWER_BYTES = 300
# What is refused today is refused tomorrow, but for these: asked too often, too slow.
_LATER = frozenset({408, 425, 429})


def post(channel: str, url: str, body: Any, token: str | None = None) -> None:
    """Send `body` as JSON to `url`; an address is a secret, so that messages name its host only.

    Raises:
        ConfigError: it is no http address.
        UnavailableError: the other side does not take it.
        TransientError: it did not get there, it may later.
    """
    host = _host(channel, url)
    headers = {"Content-Type": "application/json", "User-Agent": "edgemeter"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310 - looked at above
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - looked at above
            answer.read(_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(_ANSWER_BYTES).decode("utf-8", "replace")
        message = f"channel {channel!r}: {host} answers {error.code} {error.reason}: {said}"
        raise (TransientError if error.code >= 500 or error.code in _LATER else UnavailableError)(message) from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        message = f"channel {channel!r}: {host} cannot be reached ({reason}): it is tried again at the next check"
        raise TransientError(message) from error


def _host(channel: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https"):
        message = f"channel {channel!r}: its url is no http:// or https:// address: correct it"
        raise ConfigError(message)
    return host
