"""Which of several services on one registry is the active one: another takes over when that one is silent.

The active service counts up a number in the registry. Whoever has watched that number stand still for `LEASE_S`, by a clock of its own that
only runs forward, puts its own name there; no two clocks are compared. A service that was frozen finds the other name when it goes on: each
of its transactions looks (`Registry` with an `owner`).
"""

import time
from collections.abc import Callable
from contextlib import suppress

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.provisioning.registry.registry import Registry

LEASE_S = 10.0
RENEW_S = 2.0


class ServiceLease:
    """The lease of the service named `owner`, on a registry of its own; `close` once or more."""

    def __init__(self, registry: Registry, owner: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.owner = owner
        self.holder = ""
        self._registry = registry
        self._clock = clock
        self._seen: tuple[str, int] | None = None
        self._since_s = 0.0
        self._is_active = False

    def take(self) -> bool:
        """Return whether this service is the active one, and prolong that; `holder` is then the active one, "" for none.

        Once another took it, what this service remembers of the registry is out of date: it has to be started again.

        Raises:
            ConfigError: the registry is damaged or may not be used.
            UnavailableError: it does not answer.
            TransientError: somebody else holds it; try again.
        """
        owner, beat = self._registry.query("SELECT owner, beat FROM service")[0]
        if (owner, beat) != self._seen:
            self._seen, self._since_s = (owner, beat), self._clock()
        self.holder = owner
        is_held = owner not in {"", self.owner} and self._clock() - self._since_s < LEASE_S
        if is_held or (self._is_active and owner != self.owner):
            self._is_active = False
            return False
        with self._registry.transaction() as statements:
            change = "UPDATE service SET owner = ?, beat = beat + 1 WHERE owner = ? AND beat = ?"
            self._is_active = statements.execute(change, (self.owner, owner, beat)).rowcount == 1
        return self._is_active

    def close(self) -> None:
        """Let another take over at once, and close the registry; without a database the lease just ends."""
        if self._is_active:
            self._is_active = False
            with suppress(EdgemeterError), self._registry.transaction() as statements:
                statements.execute("UPDATE service SET owner = '', beat = beat + 1 WHERE owner = ?", (self.owner,))
        self._registry.close()
