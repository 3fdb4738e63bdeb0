"""The rules as they stand now: fleet.toml, the devices in the registry, suspects and campaigns, read again when they changed."""

import logging
from typing import Any

from edgemeter.agent.errors import EdgemeterError
from edgemeter.provisioning.campaigns import campaigns
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.health import standing
from edgemeter.provisioning.inventory import known
from edgemeter.provisioning.jobs.rules import Place, Rules
from edgemeter.provisioning.registry.registry import Registry

logger = logging.getLogger(__name__)

NS_PER_S = 1_000_000_000
LOOK_S = 2.0


class Rulebook:
    """Reads the rules; a fleet.toml that became wrong leaves them as they were, and is said once."""

    def __init__(self, folder: FleetFolder, registry: Registry) -> None:
        self._folder = folder
        self._registry = registry
        self._seen: Any = None
        self._due_ns = 0
        self.rules = Rules()

    def look(self, now_ns: int) -> bool:
        """Return whether the rules are others than before; looks every two seconds at most."""
        if now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + int(LOOK_S * NS_PER_S)
        signs = self._signs()
        if signs == self._seen:
            return False
        self._seen = signs
        try:
            fresh = read(self._folder, self._registry)
        except EdgemeterError as error:
            logger.warning("the rules stay as they were: %s", error)
            return False
        is_other, self.rules = fresh != self.rules, fresh
        return is_other

    def _signs(self) -> tuple[Any, ...]:
        try:
            file = self._folder.fleet_file.stat()
            written: tuple[int, int] | None = (file.st_mtime_ns, file.st_size)
        except OSError:
            written = None
        devices = self._registry.query("SELECT COUNT(*), MAX(changed_ns) FROM devices")[0]
        running = [(one.campaign, one.rules.max_in_flight) for one in campaigns.open_ones(self._registry)]
        return written, tuple(devices), running, standing.suspects(self._registry)


def read(folder: FleetFolder, registry: Registry) -> Rules:
    """Return the rules as they stand.

    Raises:
        ConfigError: fleet.toml has a wrong or unknown key.
    """
    said = known.written(folder)
    devices = known.read(folder, registry)
    return Rules(
        circuits_w={name: circuit.limit_w for name, circuit in said.circuit.items()} if said else {},
        quiet=said.quiet if said else (),
        places={one.device: Place(one.circuit, one.power_w, one.tags) for one in devices},
        suspects=standing.suspects(registry),
        most_in_flight={
            one.campaign: one.rules.max_in_flight for one in campaigns.open_ones(registry) if one.rules.max_in_flight is not None
        },
        revoked=frozenset(one.device for one in devices if one.standing == "revoked"),
    )
