"""The HTTP server of the page is uvicorn, with limits for slow clients.

Such clients send half a request, or do not read their answer.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgemeter.agent.base.waiting_requests import HEAD_S, WaitingRequests

STEP_S = 0.5


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The longest times of a request and its answer, and the most connections.

    The times are those that the head and the body of a request may take, and an answer until the
    client reads on.

    `most_newcomers` is the number of connections of one address before the first complete request
    of each.
    """

    head_s: float = HEAD_S
    body_s: float = 30.0
    most_newcomers: int = 16
    most_connections: int = 256


@dataclass(slots=True)
class _Connections:
    """The connections of a server.

    They are those that wait, and the newcomers of each address, oldest first.
    """

    limits: RequestLimits
    waiting: "WaitingRequests[_LimitedHttp]" = field(
        default_factory=lambda: WaitingRequests(_LimitedHttp.abort)
    )
    newcomers: "defaultdict[str, dict[_LimitedHttp, None]]" = field(
        default_factory=lambda: defaultdict(dict)
    )
    is_watched: bool = False

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close late connections from now on."""
        self.is_watched = True
        self.waiting.close_late()
        loop.call_later(STEP_S, self.watch, loop)

    def make_room(self, newcomer: "_LimitedHttp") -> None:
        """Close the oldest newcomer of an address that has too many.

        If all have too many, close whoever has waited longest.
        """
        of_address = self.newcomers[newcomer.address]
        of_address[newcomer] = None
        if len(of_address) > self.limits.most_newcomers:
            self.waiting.close(next(iter(of_address)))
        elif len(newcomer.connections) >= self.limits.most_connections:
            self.waiting.close_longest()

    def no_newcomer(self, connection: "_LimitedHttp") -> None:
        of_address = self.newcomers[connection.address]
        of_address.pop(connection, None)
        if not of_address:
            del self.newcomers[connection.address]


class _LimitedHttp(H11Protocol):
    """One connection, which waits for its client.

    It waits from its first byte to the end of each request, and while its client reads no answer.
    """

    def __init__(self, shared: _Connections, **options: Any) -> None:
        super().__init__(**options)
        self._shared, self.address = shared, ""
        # The state of the client when the present wait began.
        self._state: Any = h11.IDLE

    def abort(self) -> None:
        self._shared.no_newcomer(self)
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self._shared.is_watched:
            self._shared.watch(self.loop)
        self._shared.make_room(self)
        self._expect(self._shared.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._shared.waiting.end(self)
        self._shared.no_newcomer(self)

    def handle_events(self) -> None:
        """Handle what has arrived, and expect what follows it."""
        super().handle_events()
        if self.conn.their_state is not self._state:
            self._expect_next()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # A connection that is about to be closed expects no next request.
        if self.transport.get_write_buffer_size():
            self._expect(self._shared.limits.body_s)

    def pause_writing(self) -> None:
        """Expect that the client reads its answer."""
        super().pause_writing()
        self._expect(self._shared.limits.body_s)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._expect_next()

    def _expect_next(self) -> None:
        self._state, limits = self.conn.their_state, self._shared.limits
        if self._state is h11.SEND_BODY:
            self._expect(limits.body_s)
            return
        self._shared.no_newcomer(self)
        if self._state is h11.IDLE:
            # The last answer may not have been read yet.
            self._expect(limits.body_s if self.transport.get_write_buffer_size() else limits.head_s)
        else:
            self._shared.waiting.end(self)

    def _expect(self, within_s: float) -> None:
        self._shared.waiting.expect(self, within_s)


class PageHttp(uvicorn.Server):
    """Serves an ASGI application within these limits."""

    def __init__(self, app: Callable[..., Any], limits: RequestLimits) -> None:
        protocol: Any = partial(_LimitedHttp, _Connections(limits))
        super().__init__(
            uvicorn.Config(
                app, http=protocol, lifespan="off", ws="none", log_config=None, log_level="warning",
                access_log=False, server_header=False,
                limit_concurrency=limits.most_connections, timeout_graceful_shutdown=1,
            )
        )  # fmt: skip
