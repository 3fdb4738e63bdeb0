"""The connections of a server that wait for something of their client.

They wait for the rest of a request, or until an answer is read.

A client may open many connections and send half a request on each. So each has a deadline that
single bytes do not extend, and if there is no room for another connection, the one that has waited
longest is closed. Connections of a reverse proxy share an address, so no address is ever refused:
its oldest connection makes room too.
"""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

Connection = TypeVar("Connection")
# Seconds from the connection, or the last answer, to the end of a request's head, TLS included.
HEAD_S = 10.0


class WaitingRequests(Generic[Connection]):
    """The waiting connections, longest waiting first; `close` ends one.

    May be used from any thread.
    """

    def __init__(
        self, close: Callable[[Connection], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._close, self._clock = close, clock
        self._deadlines_s: dict[Connection, float] = {}

    def expect(self, connection: Connection, within_s: float) -> None:
        """Close the connection unless what it waits for arrives within this time."""
        self._deadlines_s.pop(connection, None)
        self._deadlines_s[connection] = self._clock() + within_s

    def end(self, connection: Connection) -> None:
        """End the wait of the connection.

        Its client sent or read everything that was expected, or the connection is closed.
        """
        self._deadlines_s.pop(connection, None)

    def close_late(self) -> None:
        """Close the connections that have waited too long; call it about twice a second."""
        now_s = self._clock()
        for connection, deadline_s in list(self._deadlines_s.items()):
            if now_s > deadline_s:
                self.close(connection)

    def close_longest(self) -> bool:
        """Close the connection that has waited longest; return False if none waits."""
        connection = next(iter(list(self._deadlines_s)), None)
        if connection is not None:
            self.close(connection)
        return connection is not None

    def close(self, connection: Connection) -> None:
        """Close a connection before its deadline."""
        self.end(connection)
        self._close(connection)
