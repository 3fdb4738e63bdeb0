"""Ends a download that comes too slowly: a timeout alone does not end a server that sends a byte now and then for ever.

Checked before each read of the socket, so a header or the size of a chunk that never ends is too slow as well.
"""

import http.client
import io
import socket
import ssl
import time
import urllib.request
from functools import partial
from typing import Any

SLOWEST_BYTES_S = 1000
SLOW_S = 60.0


class TooSlowError(Exception):
    """Fewer bytes came than the pace asks for."""


class Pace:
    """The pace of one download over all of its connections: `SLOWEST_BYTES_S` on average over each `over_s`."""

    def __init__(self, over_s: float) -> None:
        self._over_s = over_s
        self.restart()

    def count(self, content_bytes: int) -> None:
        """Take note of bytes of the file that came."""
        self._bytes += content_bytes

    def restart(self) -> None:
        """Begin a new period."""
        self._begin_s, self._bytes = time.monotonic(), 0

    def check(self) -> None:
        """Raise TooSlowError if a period is over in which too few bytes came."""
        passed_s = time.monotonic() - self._begin_s
        if passed_s < self._over_s:
            return
        if self._bytes < SLOWEST_BYTES_S * passed_s:
            raise TooSlowError(f"{self._bytes} bytes in {passed_s:.0f} s, and fewer than {SLOWEST_BYTES_S} a second are given up")
        self.restart()

    def handlers(self) -> tuple[urllib.request.BaseHandler, ...]:
        """Return what opens http and https addresses at this pace."""
        http_handler = _Http()
        https_handler = _Https(context=ssl.create_default_context())
        http_handler.pace = https_handler.pace = self
        return http_handler, https_handler


class _PacedSocket(io.RawIOBase):
    """A socket's bytes, as long as they come fast enough."""

    def __init__(self, raw: io.RawIOBase, pace: Pace) -> None:
        self._raw, self._pace = raw, pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._pace.check()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _PacedResponse(http.client.HTTPResponse):
    def __init__(self, pace: Pace, sock: socket.socket, *options: Any, **settings: Any) -> None:
        super().__init__(sock, *options, **settings)
        self.fp.close()
        self.fp = io.BufferedReader(_PacedSocket(sock.makefile("rb", buffering=0), pace))


class _Paced(urllib.request.AbstractHTTPHandler):
    pace: Pace

    def do_open(self, http_class: Any, req: urllib.request.Request, **settings: Any) -> http.client.HTTPResponse:
        def connection(*arguments: Any, **options: Any) -> http.client.HTTPConnection:
            opened: http.client.HTTPConnection = http_class(*arguments, **options)
            opened.response_class = partial(_PacedResponse, self.pace)  # type: ignore[assignment]
            return opened

        return super().do_open(connection, req, **settings)


class _Http(_Paced, urllib.request.HTTPHandler):
    pass


class _Https(_Paced, urllib.request.HTTPSHandler):
    pass
