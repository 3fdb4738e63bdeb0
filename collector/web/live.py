"""Updates for an open page (runs, states of devices, current measurements): server-sent events, whose id is the ledger's row.

A client that reconnects names the last id it has got, and gets every run after it: nothing is lost, nothing is kept for it meanwhile.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from edgemeter.agent.base.errors import TransientError
from edgemeter.collector.index.run_index import RunIndex

# Each open page keeps a thread of the server and a connection.
MOST_CLIENTS = 32
# A browser that lost the connection asks again after so many ms.
RETRY_MS = 2000
RUNS_NAMED = 20
DeviceStates = Mapping[tuple[str, str], str | None]


@dataclass(slots=True)
class LiveFeed:
    """The feed that the clients wait for; `publish` is called by one thread."""

    index: RunIndex
    heartbeat_s: float = 10.0
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _position: int | None = None
    _states: DeviceStates | None = None
    _doing: str | None = None
    _clients: int = 0
    _is_ended: bool = False

    @property
    def has_clients(self) -> bool:
        """Whether a client is connected; otherwise the states of devices need not be read, which is slow for a large fleet."""
        return self._clients > 0

    def publish(self, position: int, states: DeviceStates | None, doing: str | None = None) -> None:
        """Wake the clients if anything is new; `states` of devices and `doing`, the key of what is measured now, are None if not read."""
        with self._changed:
            if (position, states, doing) != (self._position, self._states, self._doing):
                self._position, self._states, self._doing = position, states, doing
                self._changed.notify_all()

    def end(self) -> None:
        """Let every client go."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    @contextlib.contextmanager
    def client(self) -> Iterator[None]:
        """Hold a place for a client; raises TransientError if all places are taken."""
        with self._changed:
            if self._clients >= MOST_CLIENTS:
                raise TransientError(f"{MOST_CLIENTS} pages are live already: reload this one to see what is new")
            self._clients += 1
        try:
            yield
        finally:
            with self._changed:
                self._clients -= 1

    def events(self, after: int, client_doing: str | None = None) -> Iterator[bytes]:
        """Yield events for a client that has the rows up to `after`, comments meanwhile; `client_doing`: what was measured, if it says."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        sent_states: DeviceStates | None = None
        while True:
            with self._changed:
                is_same = (sent_states is None or self._states == sent_states) and not self._is_other(client_doing)
                if not self._is_ended and not self._is_news(after) and is_same:
                    sent_states = self._states
                    self._changed.wait(self.heartbeat_s)
                if self._is_ended:
                    return
                position = self._position if self._position is not None and self._is_news(after) else after
                states, doing, is_other = self._states, self._doing, self._is_other(client_doing)
            before, now = sent_states or states or {}, states or {}
            changed = [[*name, state] for name, state in now.items() if before.get(name) != state]
            sent_states, client_doing = states, client_doing if doing is None else doing
            if changed:
                yield _event("devices", after, {"devices": changed})
            if is_other:
                # The page reads it by itself.
                yield _event("now", after, {"now": doing})
            if position != after:
                # A ledger that was begun anew is behind what the client knows.
                yield _event("runs", position, self._news(min(after, position), position))
                after = position
            elif not changed and not is_other:
                yield b": nothing new\n\n"

    def _is_other(self, client_doing: str | None) -> bool:
        """Return whether something else is measured now than a client knows that knows `client_doing`."""
        return None not in (client_doing, self._doing) and self._doing != client_doing

    def _is_news(self, after: int) -> bool:
        """Return whether a client at `after` lacks runs, or a ledger was begun anew; a page may be a moment ahead of what is published."""
        return self._position is not None and self._position != after and not self._position < after <= self.index.position()

    def _news(self, after: int, position: int) -> dict[str, Any]:
        query = """SELECT runs.id, cases.fleet, cases.device, cases.model, cases.precision, cases.runtime, runs.latency_p50_ms, runs.verdict
        FROM runs JOIN cases USING (case_number) WHERE row > ? AND row <= ? ORDER BY row DESC LIMIT ?"""
        names = ("id", "fleet", "device", "model", "precision", "runtime", "latency_p50_ms", "verdict")
        with self.index.reading() as connection:
            rows = connection.execute(query, (after, position, RUNS_NAMED)).fetchall()
            (count,) = connection.execute("SELECT count(*) FROM runs WHERE row > ? AND row <= ?", (after, position)).fetchone()
        return {"count": count, "runs": [dict(zip(names, row, strict=True)) for row in rows]}


def _event(name: str, number: int, content: object) -> bytes:
    return f"event: {name}\nid: {number}\ndata: {msgspec.json.encode(content).decode()}\n\n".encode()
